// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/convolution/convolution_choice.h"

#include "loom/base/ceil_div.h"
#include "loom/base/simd_level.h"
#include "loom/ops/recipes/convolution/convolution_checked.h"
#include "loom/ops/recipes/convolution/convolution_direct.h"
#include "loom/ops/recipes/convolution/convolution_open.h"
#include "loom/ops/recipes/product/convolve.h"
#include "loom/ops/recipes/product/convolve_pixels.h"
#include "loom/ops/recipes/product/convolve_runs.h"
#include "loom/ops/recipes/product/convolve_taps.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd.h"
#include "loom/ops/recipes/product/winograd_bfloat16.h"
#include "loom/ops/recipes/product/winograd_strided.h"

#include <algorithm>
#include <optional>

namespace loom::ops {
namespace {

WindowAxis axis(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& output,
                const WindowSteps& steps, int d) {
  const auto i = static_cast<std::size_t>(d);
  return {input.size(d + 2), output.size(d + 2), weight.size(d + 2),
          steps.stride[i],   steps.padding[i],   steps.dilation[i]};
}

Windows windows_of(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& output,
                   const WindowSteps& steps) {
  return {input.size(0), input.size(1), axis(input, weight, output, steps, 0),
          axis(input, weight, output, steps, 1)};
}

bool is_image(const at::Tensor& tensor, c10::MemoryFormat format) {
  return tensor.dim() == 4 && tensor.scalar_type() == c10::ScalarType::Float &&
         tensor.is_contiguous(format) && !tensor.is_neg() && tensor.numel() > 0;
}
bool is_plain_image(const at::Tensor& tensor) {
  return is_image(tensor, c10::MemoryFormat::Contiguous);
}
bool is_last_image(const at::Tensor& tensor) {
  return is_image(tensor, c10::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

bool are_last_images(const at::Tensor& to, const at::Tensor& from, const at::Tensor& weight) {
  return is_last_image(to) && is_last_image(from) &&
         (is_plain_image(weight) || is_last_image(weight));
}

// Where oneDNN, which makes no columns, is as fast or faster (one core of Zen 4, 3x3 windows).
constexpr std::int64_t kMostPixels = 8192;
constexpr std::int64_t kMostPixelsOfImageGradient = 4096;
constexpr std::int64_t kMostPixelsLast = 2048, kFewestChannelsLast = 16;
// With so few rows, as of a first layer, oneDNN's forward kernels are slow whatever the size.
constexpr std::int64_t kFewRows = 160;
// Two cores of Zen 4, with AVX-512 and with AVX2.
constexpr std::int64_t kFewChannels = 8, kFewTaps = 9;

bool suits_forward(const Windows& windows) {
  return windows.pixels() <= kMostPixels || windows.rows() <= kFewRows;
}
// In channels_last oneDNN reorders only the weights: that counts while there are few pixels.
bool suits_forward_last(const Windows& windows) {
  return windows.pixels() <= kMostPixelsLast && windows.channels >= kFewestChannelsLast;
}
// oneDNN is slow where windows lie more than a pixel apart, and where there are few channels, as
// its vectors are of channels. Elsewhere it adds up in registers what costs a pass for each tap
// here.
bool suits_image_gradient(const Windows& windows) {
  if (windows.channels_last) return windows.channels <= kFewestChannelsLast / 4;
  if (windows.y.stride > 1 || windows.x.stride > 1 || windows.channels <= kFewChannels) return true;
  return windows.pixels() <= (windows.taps() <= kFewTaps ? kMostPixelsOfImageGradient : kPanel);
}
bool suits_weight_gradient(const Windows& windows) {
  return windows.pixels() <= kMostPixels && windows.rows() > kFewRows;
}

// The share of an axis' taps that see the image and not what is beside it.
double seen_share(const WindowAxis& axis) {
  std::int64_t seen = 0;
  for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
    const std::int64_t first = tap * axis.dilation - axis.padding;
    const std::int64_t begin = std::max<std::int64_t>(ceil_div(-first, axis.stride), 0);
    const std::int64_t end = ceil_div(axis.size - first, axis.stride);
    seen += std::max<std::int64_t>(std::min(end, axis.result) - begin, 0);
  }
  return static_cast<double>(seen) / static_cast<double>(axis.kernel * axis.result);
}

// oneDNN leaves out taps that see no pixel; columns, runs and rows of pixels multiply zeros. Far
// apart, as in pyramids of dilated windows, most taps see nothing. With AVX2 oneDNN does so in
// channels_last only.
bool sees_little(const Windows& windows) {
  constexpr double kShare = 0.5;
  const bool dilated = windows.y.dilation > 1 || windows.x.dilation > 1;
  return dilated && (windows.channels_last || simd_level() >= SimdLevel::kAvx512) &&
         seen_share(windows.y) * seen_share(windows.x) < kShare;
}

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.is_contiguous(c10::MemoryFormat::ChannelsLast);
}

// Whether images of bfloat16 lie in channels_last, if they and the weights lie so or in the order
// of their dimensions.
std::optional<bool> bfloat16_images_last(const at::Tensor& to, const at::Tensor& from,
                                         const at::Tensor& weight) {
  for (const at::Tensor* tensor : {&to, &from, &weight}) {
    if (tensor->dim() != 4 || tensor->scalar_type() != c10::ScalarType::BFloat16 ||
        tensor->is_neg() || tensor->numel() == 0) {
      return {};
    }
  }
  const bool last = has_points(to) && is_channels_last(from);
  if (!last && (!to.is_contiguous() || !from.is_contiguous())) return {};
  if (!weight.is_contiguous() && !is_channels_last(weight)) return {};
  return last;
}

ConvolutionParameters plain(const WindowSteps& steps) {
  const auto own = [](c10::IntArrayRef list) { return at::DimVector(list.begin(), list.end()); };
  return {own(steps.stride), own(steps.padding), own(steps.dilation),
          at::DimVector(steps.stride.size(), 0)};
}

template <class T, auto kKernel, bool kTransforms>
void launch_weight_gradient(const at::Tensor& result, const at::Tensor& grad,
                            const at::Tensor& input, const at::Tensor& weight,
                            const Windows& windows, const WindowSteps& steps) {
  launch("convolution_backward", Custom{}, weight_gradient_checked<T, kKernel, kTransforms>,
         out(result), grad, input, weight,
         CheckedConvolution{windows, is_channels_last(result), plain(steps),
                            cut_backward(grad, input, weight, false, 1, true)});
}

bool convolve_as_pixels(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                        const at::Tensor& bias, const WindowSteps& steps) {
  const std::optional<bool> last = bfloat16_images_last(output, input, weight);
  if (!last || !can_multiply<c10::BFloat16>() || (bias.defined() && !bias.is_contiguous())) {
    return false;
  }
  Windows windows = windows_of(input, weight, output, steps);
  windows.channels_last = *last;
  if (sees_little(windows)) return false;
  const bool weights_last = is_channels_last(weight);
  if (suits_winograd_bfloat16(windows, weight.size(0))) {
    launch_convolution(UnlessSpread<c10::BFloat16, convolve_winograd_bfloat16, convolve_pixels>(),
                       output, input, weight, bias, windows, weights_last);
    return true;
  }
  if (!suits_pixels(windows, weight.size(0), weights_last)) return false;
  launch_convolution(convolve_pixels, output, input, weight, bias, windows, weights_last);
  return true;
}

OwnGradients convolve_pixels_backward(const at::Tensor& input_gradient,
                                      const at::Tensor& weight_gradient, const at::Tensor& grad,
                                      const at::Tensor& input, const at::Tensor& weight,
                                      const WindowSteps& steps, const char* name) {
  OwnGradients made;
  if (grad.dim() != 4 || !can_multiply<c10::BFloat16>()) return made;
  Windows windows = windows_of(input, weight, grad, steps);
  const auto last =
      input_gradient.defined() ? bfloat16_images_last(input_gradient, grad, weight) : std::nullopt;
  Windows turned = turned_windows(windows, weight.size(0));
  if (last && suits_winograd_bfloat16(turned, weight.size(1))) {
    turned.channels_last = *last;
    launch(name, Custom{},
           UnlessSpread<c10::BFloat16, convolve_winograd_bfloat16_turned,
                        image_gradient_directly_bfloat16>(),
           out(input_gradient), grad, weight, turned, is_channels_last(weight));
    made.input = true;
  }
  const auto both_last =
      weight_gradient.defined() ? bfloat16_images_last(input, grad, weight_gradient) : std::nullopt;
  if (both_last && suits_winograd_bfloat16_weights(windows, weight.size(0))) {
    windows.channels_last = *both_last;
    launch_weight_gradient<c10::BFloat16, winograd_bfloat16_weight_gradient, true>(
        weight_gradient, grad, input, weight, windows, steps);
    made.weight = true;
  }
  return made;
}

OwnGradients convolve_last_backward(const at::Tensor& input_gradient,
                                    const at::Tensor& weight_gradient, const at::Tensor& grad,
                                    const at::Tensor& input, const at::Tensor& weight,
                                    const Windows& windows, const WindowSteps& steps,
                                    const char* name) {
  OwnGradients made;
  const Windows turned = turned_windows(windows, weight.size(0));
  if (input_gradient.defined() && is_last_image(input_gradient) &&
      suits_winograd_last(turned, weight.size(1))) {
    launch(name, Custom{},
           UnlessSpread<float, convolve_winograd_last_turned, image_gradient_directly>(),
           out(input_gradient), grad, weight, turned);
    made.input = true;
  }
  if (weight_gradient.defined() && is_last_image(weight_gradient) &&
      suits_winograd_last(windows, weight.size(0))) {
    launch_weight_gradient<float, winograd_last_weight_gradient, true>(weight_gradient, grad, input,
                                                                       weight, windows, steps);
    made.weight = true;
  }
  return made;
}

}  // namespace

bool launch_own_convolution(const at::Tensor& output, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const WindowSteps& steps) {
  if (convolve_as_pixels(output, input, weight, bias, steps)) return true;
  const bool last = are_last_images(output, input, weight);
  for (const at::Tensor* tensor : {&output, &input, &weight}) {
    if (!last && !is_plain_image(*tensor)) return false;
  }
  if (!can_multiply<float>(ProductsOf::kConvolution) || (bias.defined() && !bias.is_contiguous()))
    return false;
  Windows windows = windows_of(input, weight, output, steps);
  windows.channels_last = last;
  if (sees_little(windows)) return false;
  if (suits_winograd_strided(windows, weight.size(0))) {
    launch_convolution(UnlessSpread<float, convolve_winograd_strided, convolve_strided_directly>(),
                       output, input, weight, bias, windows, is_channels_last(weight));
    return true;
  }
  if (last) {
    if (suits_winograd_last(windows, weight.size(0))) {
      launch("convolution", Custom{},
             UnlessSpread<float, convolve_winograd_last, convolve_directly>(), out(output), input,
             weight, bias, windows);
      return true;
    }
    if (!is_channels_last(weight)) return false;
    if (suits_runs(windows)) {
      launch_convolution(convolve_runs, output, input, weight, bias, windows);
      return true;
    }
    if (!suits_forward_last(windows)) return false;
    launch_convolution(convolve_columns, output, input, weight, bias, windows);
    return true;
  }
  if (suits_winograd(windows, weight.size(0))) {
    launch("convolution", Custom{}, UnlessSpread<float, convolve_winograd, convolve_directly>(),
           out(output), input, weight, bias, windows);
    return true;
  }
  if (suits_taps(windows, weight.size(0))) {
    launch("convolution", Custom{}, convolve_taps, out(output), input, weight, bias, windows);
    return true;
  }
  if (!suits_forward(windows)) return false;
  launch_convolution(convolve_columns, output, input, weight, bias, windows);
  return true;
}

bool launch_own_transposed(const at::Tensor& output, const at::Tensor& input,
                           const at::Tensor& weight, const at::Tensor& bias,
                           const WindowSteps& steps) {
  const bool last = are_last_images(output, input, weight);
  for (const at::Tensor* tensor : {&output, &input, &weight}) {
    if (!last && !is_plain_image(*tensor)) return false;
  }
  if (!can_multiply<float>(ProductsOf::kConvolution) || (bias.defined() && !bias.is_contiguous()))
    return false;
  Windows windows = windows_of(output, weight, input, steps);
  windows.channels_last = last;
  const Windows turned = turned_windows(windows, weight.size(0));
  if (sees_little(windows) || !suits_image_gradient(windows) ||
      (last ? suits_winograd_last(turned, weight.size(1))
            : suits_winograd(turned, weight.size(1)) || suits_taps(windows, weight.size(0)))) {
    return false;
  }
  launch_convolution(convolve_transposed, output, input, weight, bias, windows,
                     is_channels_last(weight));
  return true;
}

OwnGradients launch_own_convolution_backward(const at::Tensor& input_gradient,
                                             const at::Tensor& weight_gradient,
                                             const at::Tensor& grad, const at::Tensor& input,
                                             const at::Tensor& weight, const WindowSteps& steps,
                                             const char* name) {
  OwnGradients made;
  if (grad.scalar_type() == c10::ScalarType::BFloat16) {
    return convolve_pixels_backward(input_gradient, weight_gradient, grad, input, weight, steps,
                                    name);
  }
  if (!can_multiply<float>(ProductsOf::kConvolution)) return made;
  const bool last = are_last_images(grad, input, weight);
  for (const at::Tensor* tensor : {&grad, &input, &weight}) {
    if (!last && !is_plain_image(*tensor)) return made;
  }
  Windows windows = windows_of(input, weight, grad, steps);
  windows.channels_last = last;
  if (sees_little(windows)) return made;
  if (last) {
    return convolve_last_backward(input_gradient, weight_gradient, grad, input, weight, windows,
                                  steps, name);
  }
  const bool wants_input = input_gradient.defined() && is_plain_image(input_gradient);
  const Windows turned = turned_windows(windows, weight.size(0));
  const bool by_taps = suits_taps(windows, weight.size(0));
  if (wants_input && suits_winograd(turned, weight.size(1))) {
    launch(name, Custom{}, UnlessSpread<float, convolve_winograd_turned, image_gradient_directly>(),
           out(input_gradient), grad, weight, turned);
    made.input = true;
  } else if (wants_input && (by_taps || suits_image_gradient(windows))) {
    launch(name, Custom{}, by_taps ? taps_image_gradient : convolve_image_gradient,
           out(input_gradient), grad, weight, windows);
    made.input = true;
  }
  const bool wants_weight = weight_gradient.defined() && is_plain_image(weight_gradient);
  const bool by_tiles = suits_winograd(windows, weight.size(0));
  if (wants_weight && (by_tiles || by_taps || suits_weight_gradient(windows))) {
    const auto run = by_tiles  ? launch_weight_gradient<float, winograd_weight_gradient, true>
                     : by_taps ? launch_weight_gradient<float, taps_weight_gradient, false>
                               : launch_weight_gradient<float, convolve_weight_gradient, false>;
    run(weight_gradient, grad, input, weight, windows, steps);
    made.weight = true;
  }
  return made;
}

}  // namespace loom::ops
