// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/depthwise/depthwise.h"

#include "loom/base/simd_level.h"
#include "loom/kernels/conv/depthwise.h"
#include "loom/ops/recipes/convolution/convolution_open.h"
#include "loom/ops/recipes/depthwise/depthwise_parts.h"
#include "loom/ops/recipes/depthwise/depthwise_plane.h"
#include "loom/ops/recipes/depthwise/depthwise_small.h"

#include <optional>

namespace loom::ops {
namespace {

Windows windows_of(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& output,
                   const WindowSteps& steps) {
  const auto axis = [&](std::size_t i) {
    const auto d = static_cast<std::int64_t>(i) + 2;
    return WindowAxis{input.size(d),   output.size(d),   weight.size(d),
                      steps.stride[i], steps.padding[i], steps.dilation[i]};
  };
  return {input.size(0), input.size(1), axis(0), axis(1)};
}

bool has_elements_of(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.scalar_type() == dtype && tensor.numel() > 0 && !tensor.is_neg();
}

bool are_planes(const at::Tensor& output, const at::Tensor& input) {
  return output.is_contiguous() && input.is_contiguous();
}
bool are_points(const at::Tensor& output, const at::Tensor& input) {
  return output.is_contiguous(c10::MemoryFormat::ChannelsLast) &&
         input.is_contiguous(c10::MemoryFormat::ChannelsLast);
}

/// What a convolution has to do, in the multiply-adds of a product (launch_open.h): those of
/// vectors take several times as long.
double work_of(const Windows& windows, std::int64_t filters) {
  constexpr double kOfProduct = 10;
  return kOfProduct * static_cast<double>(windows.images * filters * windows.result_plane()) *
         static_cast<double>(windows.taps());
}

/// An operand that is read, and that what follows may be written over: a plane of it is of no use
/// any more once that of the result is final, so a norm's result, which is allocated when the
/// operand has been freed, may take its place (fusion/program_set.cpp).
struct ReplacedOperand {
  TensorRef ref;

  operator const TensorRef&() const noexcept { return ref; }
  void accesses(AccessList& list) const { ref.append_access(list, AccessKind::kUpdate); }
};

template <class Kernel>
void launch_open_if_long(Kernel kernel, const at::Tensor& output, const at::Tensor& input,
                         const at::Tensor& weight, const at::Tensor& bias, const Windows& windows) {
  const bool open = may_be_joined(output.device(), work_of(windows, output.size(1)));
  const auto shape = open ? result_shape(output) : std::nullopt;
  if (shape && !windows.channels_last && reads_own_planes(windows, output.size(1))) {
    launch_open("convolution", *shape, kernel, out(output), ReplacedOperand{TensorRef(input)},
                weight, bias, windows);
  } else if (shape) {
    launch_open("convolution", *shape, kernel, out(output), input, weight, bias, windows);
  } else {
    launch("convolution", Custom{}, kernel, out(output), input, weight, bias, windows);
  }
}

// Small planes of float32 where they lie, with `columns` pixels in a row of the result: turning
// takes longer than nine taps in vectors that are half empty, and as long as more taps in full
// ones.
bool are_better_direct(const at::Tensor& result, const WindowAxis& y, const WindowAxis& x,
                       std::int64_t columns) {
  const std::int64_t lanes = simd_level() >= SimdLevel::kAvx512 ? 16 : 8;
  return result.scalar_type() == c10::ScalarType::Float && are_direct_windows(y, x) &&
         (x.kernel == 3 || 2 * columns > lanes);
}

/// Whether vectors of our own take operands of these shapes, and in which layout.
bool are_depthwise(const at::Tensor& to, const at::Tensor& from, const at::Tensor& weight,
                   std::int64_t groups) {
  const c10::ScalarType dtype = to.scalar_type();
  if (dtype != c10::ScalarType::Float && dtype != c10::ScalarType::BFloat16) return false;
  if (groups == 1 || from.dim() != 4) return false;
  for (const at::Tensor* tensor : {&to, &from, &weight}) {
    if (!has_elements_of(*tensor, dtype)) return false;
  }
  // A filter has one channel: its weights lie together in either layout.
  return weight.is_contiguous() &&
         weight.size(2) * weight.size(3) <= kernels::conv::kMostDepthwiseTaps;
}

}  // namespace

bool launch_depthwise(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                      const at::Tensor& bias, const WindowSteps& steps, std::int64_t groups) {
  if (groups != input.size(1) || !are_depthwise(output, input, weight, groups)) return false;
  if (bias.defined() && (!has_elements_of(bias, output.scalar_type()) || !bias.is_contiguous())) {
    return false;
  }
  Windows windows = windows_of(input, weight, output, steps);
  if (are_planes(output, input)) {
    const bool turned = output.size(1) == groups && suits_turned_planes(windows) &&
                        !are_better_direct(output, windows.y, windows.x, windows.x.result);
    launch_open_if_long(turned ? depthwise_turned_planes : depthwise_planes, output, input, weight,
                        bias, windows);
    return true;
  }
  if (!are_points(output, input) || output.size(1) != groups) return false;
  windows.channels_last = true;
  launch_open_if_long(depthwise_last, output, input, weight, bias, windows);
  return true;
}

OwnGradients launch_depthwise_backward(const at::Tensor& input_gradient,
                                       const at::Tensor& weight_gradient, const at::Tensor& grad,
                                       const at::Tensor& input, const at::Tensor& weight,
                                       const WindowSteps& steps, std::int64_t groups) {
  OwnGradients made;
  if (input.dim() != 4 || groups != input.size(1) || groups != grad.size(1)) return made;
  const Windows windows = windows_of(input, weight, grad, steps);
  const auto points = [](const at::Tensor& a, const at::Tensor& b) {
    return are_planes(a, b)   ? std::optional(false)
           : are_points(a, b) ? std::optional(true)
                              : std::nullopt;
  };
  const auto one = [](const WindowAxis& axis) { return axis.stride == 1 || axis.dilation == 1; };
  if (input_gradient.defined() && are_depthwise(input_gradient, grad, weight, groups)) {
    const auto last = points(input_gradient, grad);
    if (last && (*last || (one(windows.y) && one(windows.x)))) {
      const bool turned = windows.y.stride == 1 && windows.x.stride == 1 && !*last &&
                          suits_turned_planes(windows) &&
                          !are_better_direct(input_gradient, windows.y, windows.x, windows.x.size);
      launch("convolution_backward", Custom{},
             turned  ? depthwise_turned_gradient
             : *last ? depthwise_last_image_gradient
                     : depthwise_image_gradient,
             out(input_gradient), grad, weight, windows);
      made.input = true;
    }
  }
  if (weight_gradient.defined() && are_depthwise(input, grad, weight_gradient, groups)) {
    if (const auto last = points(input, grad)) {
      launch("convolution_backward", Custom{},
             *last ? depthwise_last_weight_gradient : depthwise_weight_gradient,
             out(weight_gradient), grad, input, windows);
      made.weight = true;
    }
  }
  return made;
}

}  // namespace loom::ops
