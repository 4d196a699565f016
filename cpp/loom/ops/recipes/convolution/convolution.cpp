// SPDX-License-Identifier: BSD-3-Clause
// Convolutions of every kind, cut along the batch or along channels. Those with one weight a pair
// of channels are matrix products. Gradients of the parameters are summed over parts of the batch
// in their order.
#include "loom/ops/cuts/convolution_cut.h"
#include "loom/ops/launch/device_output_scope.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/type_name.h"
#include "loom/ops/meta/dtype_probe.h"
#include "loom/ops/recipes/convolution/convolution_blocks.h"
#include "loom/ops/recipes/convolution/convolution_choice.h"
#include "loom/ops/recipes/convolution/convolution_open.h"
#include "loom/ops/recipes/convolution/convolution_product.h"

#include <ATen/DimVector.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <c10/core/MemoryFormat.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

namespace loom::ops {
namespace {

using Parameters = ConvolutionParameters;

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

/// A tensor of the cpu of the same geometry, whose elements nobody may read.
at::Tensor same_geometry(const at::Tensor& tensor) {
  static char nothing = 0;
  return at::from_blob(&nothing, tensor.sizes(), tensor.strides(),
                       tensor.options().device(c10::kCPU));
}

/// Whether a result is channels last, as those of CPU convolutions are: images if the input or the
/// weight is, volumes where the kernel that PyTorch would choose follows them.
bool is_channels_last(const at::Tensor& input, const at::Tensor& weight, const Parameters& p) {
  constexpr auto kImages = c10::MemoryFormat::ChannelsLast;
  if (input.dim() == 4) {
    return input.suggest_memory_format() == kImages || weight.suggest_memory_format() == kImages;
  }
  if (!at::native::mkldnn_conv_use_channels_last(input, weight)) return false;
  const at::Tensor x = same_geometry(input), w = same_geometry(weight);
  const auto list = [](c10::IntArrayRef values) { return c10::fromIntArrayRefSlow(values); };
  const auto backend = at::native::select_conv_backend(
      x, w, std::nullopt, list(p.stride), list(p.padding), list(p.dilation), p.transposed,
      list(p.output_padding), p.groups, std::nullopt);
  return at::native::_determine_backend_memory_format(x, w, backend) !=
         c10::MemoryFormat::Contiguous;
}

at::Tensor empty_result(c10::IntArrayRef sizes, const at::Tensor& like, bool channels_last) {
  if (sizes.size() < 4 || !channels_last) return empty(sizes, like.scalar_type(), like.device());
  const auto strides = sizes.size() == 4 ? c10::get_channels_last_strides_2d(sizes)
                                         : c10::get_channels_last_strides_3d(sizes);
  return empty_strided(sizes, strides, like.scalar_type(), like.device());
}

void check_same_type(const at::Tensor& input, const at::Tensor& weight,
                     const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(input.options().type_equal(weight.options()), "Input type (", type_name(input),
              ") and weight type (", type_name(weight),
              ") should be the same or input should be a MKLDNN tensor and weight is a dense "
              "tensor");
  TORCH_CHECK(!bias || !bias->defined() || input.options().type_equal(bias->options()),
              "Input type (", type_name(input), ") and bias type (",
              bias && bias->defined() ? type_name(*bias) : "", ") should be the same");
}

/// Throws what the CPU kernel throws for a dtype that it does not know, found by a single pixel.
void check_dtype(const at::Tensor& input, const Parameters& p) {
  const c10::ScalarType dtype = input.scalar_type();
  if (dtype == c10::kFloat || dtype == c10::kDouble || c10::isReducedFloatingType(dtype)) return;
  const NoWarnings about_stand_ins;
  const at::DimVector none(input.dim() - 2, 0), one(input.dim() - 2, 1);
  const at::Tensor pixel = stand_in(input);
  (void)at::convolution(pixel, pixel, {}, one, none, one, p.transposed, none, 1);
}

/// How many tensors of the result's size oneDNN makes before it, in the order of its own: none in
/// channels_last, else those of the result and perhaps of the input.
int made_before(const at::Tensor& to, const at::Tensor& input, bool channels_last) {
  if (channels_last) return 0;
  return input.numel() == to.numel() ? 2 : 1;
}

// Runs on a core. The kernel's result is made where it belongs, if its allocation is recognised.
void convolve_to(const at::Tensor& to, const at::Tensor& input, const at::Tensor& weight,
                 const at::Tensor& bias, const Parameters& p) {
  const bool channels_last = at::native::mkldnn_conv_use_channels_last(input, weight);
  const bool dense =
      to.is_contiguous(channels_last ? to.suggest_memory_format() : c10::MemoryFormat::Contiguous);
  at::Tensor made;
  {
    PlacedAllocation placed(dense ? to.mutable_data_ptr() : nullptr, dense ? to.nbytes() : 0,
                            made_before(to, input, channels_last));
    made = convolve(input, weight, bias, p);
  }
  // A kernel that follows no memory format makes the result in its place in another order.
  const bool placed_there = made.const_data_ptr() == to.const_data_ptr();
  if (placed_there && made.strides() == to.strides()) return;
  to.copy_(placed_there ? made.clone() : made);
}

}  // namespace

void convolve_blocks(Grid& grid, const TensorRef& output, const TensorRef& input,
                     const TensorRef& weight, const TensorRef& bias, const Parameters& p,
                     ConvolutionCut cut, bool points) {
  grid.run(cut.count(), [&](std::int64_t index) {
    if (cut.channels) {
      convolve_to(cut.part(output, 1, index), input.alias(),
                  cut.part(weight, p.transposed ? 1 : 0, index), cut.part(bias, 0, index), p);
    } else {
      convolve_to(cut.part(output, 0, index), cut.part(input, 0, index), weight.alias(),
                  bias.alias(), p);
    }
    finish_block(grid, output, points, cut, index);
  });
}

namespace {

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
  const Parameters p = parameters(stride, padding, dilation, transposed, output_padding, groups);
  at::Tensor output = empty_result(sizes, input, is_channels_last(input, weight, p));
  if (output.numel() == 0) return output;
  if (!transposed && groups == 1 && is_plain(stride, padding) &&
      convolve_as_product(output, input, weight, bias.value_or(at::Tensor()))) {
    return output;
  }
  if (!transposed && groups == 1 &&
      launch_own_convolution(output, input, weight, bias.value_or(at::Tensor()),
                             {stride, padding, dilation})) {
    return output;
  }
  check_dtype(input, p);
  const ConvolutionCut cut = cut_forward(output, input, weight, transposed, groups);
  // Nothing is gained from one block, or from blocks that leave the caches before they are done.
  constexpr std::size_t kMostBlockBytes = 4 << 20;
  const bool near =
      cut.count() > 1 && output.nbytes() / static_cast<std::size_t>(cut.count()) <= kMostBlockBytes;
  if (near) {
    launch_convolution(convolve_blocks, output, input, weight, bias, p, cut, has_points(output));
  } else {
    launch("convolution", Custom{}, convolve_blocks, out(output), input, weight, bias, p, cut,
           has_points(output));
  }
  return output;
}

/// The gradients that are asked for; others are undefined.
struct Gradients {
  at::Tensor input, weight, bias;
};

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

using GradientTuple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

GradientTuple backward_of(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                          const Parameters& p, std::array<bool, 3> mask) {
  const at::DimVector bias_sizes{grad.size(1)};
  return at::convolution_backward(
      grad, input, weight, mask[2] ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt, p.stride,
      p.padding, p.dilation, p.transposed, p.output_padding, p.groups, mask);
}

// Every block has some samples: the parameters' gradients are sums over blocks.
void backward_by_batch(Grid& grid, const TensorRef& input_gradient,
                       const TensorRef& weight_gradient, const TensorRef& bias_gradient,
                       const TensorRef& grad, const TensorRef& input, const TensorRef& weight,
                       const Parameters& p, ConvolutionCut cut) {
  const std::array<bool, 3> mask{input_gradient.defined(), weight_gradient.defined(),
                                 bias_gradient.defined()};
  GradientParts weight_parts(weight_gradient, cut.count());
  GradientParts bias_parts(bias_gradient, cut.count());
  grid.run(cut.count(), [&](std::int64_t index) {
    const auto [to_input, to_weight, to_bias] =
        backward_of(cut.part(grad, 0, index), cut.part(input, 0, index), weight.alias(), p, mask);
    if (mask[0]) cut.part(input_gradient, 0, index).copy_(to_input);
    weight_parts.set(index, to_weight);
    bias_parts.set(index, to_bias);
  });
  weight_parts.add_up();
  bias_parts.add_up();
}

// Every block has some of the input's channels and their weights: there is nothing to add up.
void backward_by_channels(Grid& grid, const TensorRef& input_gradient,
                          const TensorRef& weight_gradient, const TensorRef& bias_gradient,
                          const TensorRef& grad, const TensorRef& input, const TensorRef& weight,
                          const Parameters& p, ConvolutionCut cut) {
  const int filters = p.transposed ? 0 : 1;
  grid.run(cut.count(), [&](std::int64_t index) {
    const std::array<bool, 3> mask{input_gradient.defined(), weight_gradient.defined(),
                                   bias_gradient.defined() && index == 0};
    const auto [to_input, to_weight, to_bias] = backward_of(
        grad.alias(), cut.part(input, 1, index), cut.part(weight, filters, index), p, mask);
    if (mask[0]) cut.part(input_gradient, 1, index).copy_(to_input);
    if (mask[1]) cut.part(weight_gradient, filters, index).copy_(to_weight);
    if (mask[2]) bias_gradient.alias().copy_(to_bias);
  });
}

}  // namespace

void convolve_backward_blocks(Grid& grid, const TensorRef& input_gradient,
                              const TensorRef& weight_gradient, const TensorRef& bias_gradient,
                              const TensorRef& grad, const TensorRef& input,
                              const TensorRef& weight, const Parameters& p, ConvolutionCut cut) {
  const auto run = cut.channels ? backward_by_channels : backward_by_batch;
  run(grid, input_gradient, weight_gradient, bias_gradient, grad, input, weight, p, cut);
}

namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
    c10::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> mask) {
  Gradients to;
  const Parameters p = parameters(stride, padding, dilation, transposed, output_padding, groups);
  const bool channels_last = is_channels_last(input, weight, p);
  if (mask[0]) to.input = empty_result(input.sizes(), input, channels_last);
  if (mask[1]) to.weight = empty_result(weight.sizes(), input, channels_last);
  if (mask[2]) to.bias = empty({grad.size(1)}, grad.scalar_type(), grad.device());
  if (!transposed && groups == 1 && is_plain(stride, padding) &&
      convolve_backward_as_product(to.input, to.weight, to.bias, grad, input, weight)) {
    return {to.input, to.weight, to.bias};
  }
  // What is left for oneDNN.
  Gradients other = to;
  if (!transposed && groups == 1) {
    const OwnGradients made = launch_own_convolution_backward(to.input, to.weight, grad, input,
                                                              weight, {stride, padding, dilation});
    if (made.input) other.input.reset();
    if (made.weight) other.weight.reset();
    if (other.bias.defined() && (made.input || made.weight)) {
      sum_over_pixels(other.bias, grad);
      other.bias.reset();
    }
    if (!other.input.defined() && !other.weight.defined() && !other.bias.defined()) {
      return {to.input, to.weight, to.bias};
    }
  }
  launch_on(grad.device(), "convolution_backward", Custom{}, convolve_backward_blocks,
            out(other.input), out(other.weight), out(other.bias), grad, input, weight, p,
            cut_backward(grad, input, weight, transposed, groups,
                         other.weight.defined() || other.bias.defined()));
  return {to.input, to.weight, to.bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace loom::ops
