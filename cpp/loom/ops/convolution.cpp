// SPDX-License-Identifier: BSD-3-Clause
// Convolutions of every kind, cut along the batch, or along the output's channels where there is
// no batch. Gradients of the parameters are summed over parts of the batch in their order.
#include "loom/ops/empty.h"
#include "loom/ops/launch.h"

#include <ATen/DimVector.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <c10/core/MemoryFormat.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

namespace loom::ops {
namespace {

// One multiply-add, in the unit of Pointwise's cost.
constexpr double kFlopPairCost = 0.1;
// A block reorders weights and sets up a primitive: it should be worth some 100 us.
constexpr double kBlockCost = 300'000;
constexpr std::int64_t kFewestChannels = 16;
// Each part of a parameter's gradient is as large as the parameter.
constexpr std::int64_t kMaxGradientParts = 8;

/// What the arguments of a convolution have in common in both directions.
struct Parameters {
  at::DimVector stride, padding, dilation, output_padding;
  bool transposed;
  std::int64_t groups;
};

Parameters parameters(c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                      bool transposed, c10::IntArrayRef output_padding, std::int64_t groups) {
  const auto own = [](c10::IntArrayRef list) { return at::DimVector(list.begin(), list.end()); };
  return {own(stride), own(padding), own(dilation), own(output_padding), transposed, groups};
}

at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    const Parameters& p) {
  return at::convolution(input, weight, bias, p.stride, p.padding, p.dilation, p.transposed,
                         p.output_padding, p.groups);
}

/// As CPU convolutions do: channels last if the input or the weight is.
at::Tensor empty_result(c10::IntArrayRef sizes, const at::Tensor& input, const at::Tensor& weight) {
  const bool channels_last = at::native::mkldnn_conv_use_channels_last(input, weight);
  if (!channels_last || sizes.size() < 4) return empty(sizes, input.scalar_type(), input.device());
  const auto strides = sizes.size() == 4 ? c10::get_channels_last_strides_2d(sizes)
                                         : c10::get_channels_last_strides_3d(sizes);
  return empty_strided(sizes, strides, input.scalar_type(), input.device());
}

void check_same_type(const at::Tensor& input, const at::Tensor& weight,
                     const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(input.options().type_equal(weight.options()), "Input type (", input.toString(),
              ") and weight type (", weight.toString(),
              ") should be the same or input should be a MKLDNN tensor and weight is a dense "
              "tensor");
  TORCH_CHECK(!bias || !bias->defined() || input.options().type_equal(bias->options()),
              "Input type (", input.toString(), ") and bias type (",
              bias && bias->defined() ? bias->toString() : "", ") should be the same");
}

double item_cost(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                 bool transposed) {
  // Every element of the side that has the weight's first channels meets one filter.
  const at::Tensor& side = transposed ? input : output;
  const double elements = static_cast<double>(side.numel()) /
                          static_cast<double>(std::max<std::int64_t>(side.size(0), 1));
  return kFlopPairCost * elements * static_cast<double>(weight.numel()) /
         static_cast<double>(std::max<std::int64_t>(weight.size(0), 1));
}

std::int64_t items_of_block(std::int64_t items, double cost) {
  const double wanted = std::ceil(kBlockCost / std::max(cost, 1.0));
  return static_cast<std::int64_t>(
      std::clamp(wanted, 1.0, static_cast<double>(std::max<std::int64_t>(items, 1))));
}

// Operands: output, input, weight, bias.
Along cut_forward(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                  const Parameters& p) {
  constexpr std::int8_t kWhole = SlicePlan::kWhole;
  const double cost = item_cost(output, input, weight, p.transposed);
  const std::int64_t batch = output.size(0);
  if (batch > 1) {
    return {.dims = {0, 0, kWhole, kWhole}, .block = items_of_block(batch, cost)};
  }
  if (p.groups != 1 || cost < 2 * kBlockCost) return {.dims = {kWhole, kWhole, kWhole, kWhole}};
  const std::int64_t channels = output.size(1);
  const std::int64_t block =
      items_of_block(channels, cost / static_cast<double>(std::max<std::int64_t>(channels, 1)));
  const auto filters = static_cast<std::int8_t>(p.transposed ? 1 : 0);
  return {.dims = {1, kWhole, filters, 0}, .block = std::max(block, kFewestChannels)};
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, std::int64_t groups) {
  check_same_type(input, weight, bias);
  const auto sizes =
      transposed
          ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding,
                                        stride, dilation, groups)
          : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  at::Tensor output = empty_result(sizes, input, weight);
  if (output.numel() == 0) return output;
  const Parameters p = parameters(stride, padding, dilation, transposed, output_padding, groups);
  const auto kernel = [](const at::Tensor& to, const at::Tensor& in, const at::Tensor& filters,
                         const at::Tensor& added,
                         const Parameters& all) { to.copy_(convolve(in, filters, added, all)); };
  launch("convolution", cut_forward(output, input, weight, p), kernel, out(output), input, weight,
         bias, p);
  return output;
}

/// The gradients that are asked for; others are undefined.
struct Gradients {
  at::Tensor input, weight, bias;
};

/// How a backward is cut: `block` samples each, of `batch`.
struct BatchCut {
  std::int64_t batch, block;

  [[nodiscard]] std::int64_t count() const noexcept { return (batch + block - 1) / block; }
  [[nodiscard]] at::Tensor part(const TensorRef& whole, std::int64_t index) const {
    const std::int64_t begin = index * block;
    return whole.alias_slice(0, begin, std::min(block, batch - begin));
  }
};

BatchCut cut_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                      bool transposed, bool with_parameters) {
  const std::int64_t batch = std::max<std::int64_t>(grad.size(0), 1);
  std::int64_t block = items_of_block(batch, 2 * item_cost(grad, input, weight, transposed));
  if (with_parameters) {
    block = std::max(block, (batch + kMaxGradientParts - 1) / kMaxGradientParts);
  }
  return {batch, block};
}

/// Parts of a parameter's gradient, one for each block of the batch.
class GradientParts {
 public:
  GradientParts(const TensorRef& gradient, std::int64_t count) : gradient_(gradient.alias()) {
    if (!gradient_.defined() || count == 1) return;
    at::DimVector sizes{count};
    sizes.append(gradient_.sizes().begin(), gradient_.sizes().end());
    parts_ = at::empty(sizes, gradient_.options());
  }
  void set(std::int64_t index, const at::Tensor& part) {
    if (!gradient_.defined()) return;
    (parts_.defined() ? parts_.select(0, index) : gradient_).copy_(part);
  }
  void add_up() {
    if (!parts_.defined()) return;
    at::cpu::sum_outf(parts_, c10::IntArrayRef{0}, false, std::nullopt, gradient_);
  }

 private:
  at::Tensor gradient_, parts_;
};

// Runs on the worker.
void backward(Grid& grid, const TensorRef& input_gradient, const TensorRef& weight_gradient,
              const TensorRef& bias_gradient, const TensorRef& grad, const TensorRef& input,
              const TensorRef& weight, const Parameters& p, BatchCut cut) {
  const std::array<bool, 3> mask{input_gradient.defined(), weight_gradient.defined(),
                                 bias_gradient.defined()};
  GradientParts weight_parts(weight_gradient, cut.count());
  GradientParts bias_parts(bias_gradient, cut.count());
  const at::DimVector bias_sizes{grad.sizes()[1]};
  grid.run(cut.count(), [&](std::int64_t index) {
    const auto [to_input, to_weight, to_bias] = at::convolution_backward(
        cut.part(grad, index), cut.part(input, index), weight.alias(),
        mask[2] ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt, p.stride, p.padding,
        p.dilation, p.transposed, p.output_padding, p.groups, mask);
    if (mask[0]) cut.part(input_gradient, index).copy_(to_input);
    weight_parts.set(index, to_weight);
    bias_parts.set(index, to_bias);
  });
  weight_parts.add_up();
  bias_parts.add_up();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
    c10::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> mask) {
  Gradients to;
  if (mask[0]) to.input = empty_result(input.sizes(), input, weight);
  if (mask[1]) to.weight = empty_result(weight.sizes(), weight, input);
  if (mask[2]) to.bias = empty({grad.size(1)}, grad.scalar_type(), grad.device());
  const Parameters p = parameters(stride, padding, dilation, transposed, output_padding, groups);
  launch_on(grad.device(), "convolution_backward", Custom{}, backward, out(to.input),
            out(to.weight), out(to.bias), grad, input, weight, p,
            cut_backward(grad, input, weight, transposed, mask[1] || mask[2]));
  return {to.input, to.weight, to.bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace loom::ops
