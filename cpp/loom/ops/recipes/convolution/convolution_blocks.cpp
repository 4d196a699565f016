// SPDX-License-Identifier: BSD-3-Clause
// Gradients of the parameters are summed over parts of the batch in their order.
#include "loom/ops/recipes/convolution/convolution_blocks.h"

#include "loom/ops/launch/device_output_scope.h"
#include "loom/ops/recipes/convolution/convolution_open.h"

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mkldnn_convolution.h>
#include <ATen/ops/sum_cpu_dispatch.h>

#include <array>

namespace loom::ops {
namespace {

using Parameters = ConvolutionParameters;

c10::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  if (!at::native::mkldnn_conv_use_channels_last(input, weight)) {
    return c10::MemoryFormat::Contiguous;
  }
  return input.dim() == 5 ? c10::MemoryFormat::ChannelsLast3d : c10::MemoryFormat::ChannelsLast;
}

at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    const Parameters& p) {
  if (p.onednn) {
    const auto format = format_of(input, weight);
    const at::Tensor x = input.contiguous(format), w = weight.contiguous(format);
    if (p.transposed) {
      return at::native::mkldnn_convolution_transpose_stub(
          c10::kCPU, x, w, bias, p.padding, p.output_padding, p.stride, p.dilation, p.groups);
    }
    return at::mkldnn_convolution(x, w, bias, p.padding, p.stride, p.dilation, p.groups);
  }
  return at::convolution(input, weight, bias, p.stride, p.padding, p.dilation, p.transposed,
                         p.output_padding, p.groups);
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

/// A cut into the same groups on the side that has so many channels.
ConvolutionCut same_groups(const ConvolutionCut& cut, std::int64_t groups, std::int64_t channels) {
  return {channels, cut.block / (cut.items / groups) * (channels / groups), true};
}

}  // namespace

void convolve_blocks(Grid& grid, const TensorRef& output, const TensorRef& input,
                     const TensorRef& weight, const TensorRef& bias, const Parameters& p,
                     ConvolutionCut cut, bool points) {
  grid.run(cut.count(), [&](std::int64_t index) {
    if (cut.channels && p.groups > 1) {
      // Some groups: what they see of the input, and their weights.
      const std::int64_t filters = cut.items / p.groups;
      const ConvolutionCut seen = same_groups(cut, p.groups, input.sizes()[1]);
      const at::Tensor to = cut.part(output, 1, index);
      Parameters some = p;
      some.groups = to.size(1) / filters;
      convolve_to(to, seen.part(input, 1, index),
                  (p.transposed ? seen : cut).part(weight, 0, index), cut.part(bias, 0, index),
                  some);
    } else if (cut.channels) {
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
  if (p.onednn) {
    const auto format = format_of(input, weight);
    const at::Tensor x = input.contiguous(format), w = weight.contiguous(format);
    if (p.transposed) {
      return at::native::mkldnn_convolution_transpose_backward_stub(
          c10::kCPU, x, grad, w, p.padding, p.output_padding, p.stride, p.dilation, p.groups, mask);
    }
    return at::native::mkldnn_convolution_backward_stub(c10::kCPU, x, grad, w, p.padding, p.stride,
                                                        p.dilation, p.groups, mask);
  }
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
  if (cut.count() == 1 && mask[0] && mask[1]) {
    // The two have nothing in common but what they read.
    const auto backward = [&](bool of_input) {
      return backward_of(grad.alias(), input.alias(), weight.alias(), p,
                         {of_input, !of_input, !of_input && mask[2]});
    };
    grid.run(2, [&](std::int64_t index) {
      const auto [to_input, to_weight, to_bias] = backward(index == 0);
      if (index == 0) {
        input_gradient.alias().copy_(to_input);
      } else {
        weight_gradient.alias().copy_(to_weight);
        if (mask[2]) bias_gradient.alias().copy_(to_bias);
      }
    });
    return;
  }
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

// Every block has some groups, which have nothing in common.
void backward_by_groups(Grid& grid, const TensorRef& input_gradient,
                        const TensorRef& weight_gradient, const TensorRef& bias_gradient,
                        const TensorRef& grad, const TensorRef& input, const TensorRef& weight,
                        const Parameters& p, ConvolutionCut cut) {
  const ConvolutionCut results = same_groups(cut, p.groups, grad.sizes()[1]);
  const ConvolutionCut& filters = p.transposed ? cut : results;
  const std::array<bool, 3> mask{input_gradient.defined(), weight_gradient.defined(),
                                 bias_gradient.defined()};
  grid.run(cut.count(), [&](std::int64_t index) {
    const at::Tensor from = cut.part(input, 1, index);
    Parameters some = p;
    some.groups = from.size(1) / (cut.items / p.groups);
    const auto [to_input, to_weight, to_bias] =
        backward_of(results.part(grad, 1, index), from, filters.part(weight, 0, index), some, mask);
    if (mask[0]) cut.part(input_gradient, 1, index).copy_(to_input);
    if (mask[1]) filters.part(weight_gradient, 0, index).copy_(to_weight);
    if (mask[2]) results.part(bias_gradient, 0, index).copy_(to_bias);
  });
}

}  // namespace

void convolve_backward_blocks(Grid& grid, const TensorRef& input_gradient,
                              const TensorRef& weight_gradient, const TensorRef& bias_gradient,
                              const TensorRef& grad, const TensorRef& input,
                              const TensorRef& weight, const Parameters& p, ConvolutionCut cut) {
  const auto run = !cut.channels || cut.count() == 1 ? backward_by_batch
                   : p.groups == 1                   ? backward_by_channels
                                                     : backward_by_groups;
  run(grid, input_gradient, weight_gradient, bias_gradient, grad, input, weight, p, cut);
}

}  // namespace loom::ops
