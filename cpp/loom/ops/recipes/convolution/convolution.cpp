// SPDX-License-Identifier: BSD-3-Clause
// Convolutions of every kind: those that kernels of our own take, and others, which ATen runs on
// parts of the batch or of the channels.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/cuts/convolution_cut.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/type_name.h"
#include "loom/ops/meta/dtype_probe.h"
#include "loom/ops/recipes/convolution/convolution_backend.h"
#include "loom/ops/recipes/convolution/convolution_blocks.h"
#include "loom/ops/recipes/convolution/convolution_choice.h"
#include "loom/ops/recipes/convolution/convolution_detour.h"
#include "loom/ops/recipes/convolution/convolution_open.h"
#include "loom/ops/recipes/convolution/convolution_phases.h"
#include "loom/ops/recipes/convolution/convolution_product.h"
#include "loom/ops/recipes/depthwise/depthwise.h"
#include "loom/ops/recipes/product/in_floats.h"

#include <ATen/DimVector.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <c10/core/MemoryFormat.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <tuple>

namespace loom::ops {
namespace {

using Parameters = ConvolutionParameters;

Parameters parameters(c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                      bool transposed, c10::IntArrayRef output_padding, std::int64_t groups) {
  const auto own = [](c10::IntArrayRef list) { return at::DimVector(list.begin(), list.end()); };
  return {own(stride), own(padding), own(dilation), own(output_padding), transposed, groups};
}

/// Whether there may be parts, or a kernel that is worth choosing.
bool is_long(const ConvolutionCut& cut, const at::Tensor& output, const at::Tensor& weight) {
  constexpr double kLeastProducts = 4e6;
  return cut.count() > 1 ||
         (output.dim() == 5 &&
          static_cast<double>(output.numel()) * static_cast<double>(weight.numel()) >=
              kLeastProducts * static_cast<double>(weight.size(0)));
}

at::Tensor empty_result(c10::IntArrayRef sizes, const at::Tensor& like, bool channels_last) {
  const bool last = sizes.size() >= 4 && channels_last;
  return empty(sizes, like.scalar_type(), like.device(),
               !last               ? c10::MemoryFormat::Contiguous
               : sizes.size() == 4 ? c10::MemoryFormat::ChannelsLast
                                   : c10::MemoryFormat::ChannelsLast3d);
}

/// A single pixel may be in both orders.
bool are_planes(std::initializer_list<at::Tensor> operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const at::Tensor& operand) { return operand.is_contiguous(); });
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

/// A tensor that lies as the images of a convolution do: kernels would put it in that order
/// themselves, in every block and each on one core.
at::Tensor in_order(const at::Tensor& tensor, bool channels_last) {
  if (tensor.dim() < 4 || !channels_last) return tensor.contiguous();
  return tensor.contiguous(tensor.dim() == 4 ? c10::MemoryFormat::ChannelsLast
                                             : c10::MemoryFormat::ChannelsLast3d);
}

/// What is transposed is the gradient of the images of a convolution.
bool launch_transposed(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                       const at::Tensor& bias, const Parameters& p) {
  if (p.groups != 1 || (bias.defined() && bias.scalar_type() != output.scalar_type())) return false;
  const WindowSteps steps{p.stride, p.padding, p.dilation};
  if (launch_own_transposed(output, input, weight, bias, steps)) return true;
  if (!launch_own_convolution_backward(output, {}, input, output, weight, steps, "convolution")
           .input) {
    return false;
  }
  if (bias.defined()) {
    at::DimVector sizes(output.dim() - 1, 1);
    sizes[0] = bias.size(0);
    at::Tensor result = output;
    result.add_(bias.view(sizes));
  }
  return true;
}

/// One of those that need neither oneDNN nor ATen.
bool convolve_alone(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias, const Parameters& p) {
  if (p.transposed) return launch_transposed(output, input, weight, bias, p);
  const WindowSteps steps{p.stride, p.padding, p.dilation};
  if (p.groups != 1) return launch_depthwise(output, input, weight, bias, steps, p.groups);
  return (is_plain(p.stride, p.padding) && convolve_as_product(output, input, weight, bias)) ||
         launch_own_convolution(output, input, weight, bias, steps);
}

at::Tensor convolve_images(const at::Tensor& input, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias, const Parameters& p,
                           c10::IntArrayRef sizes) {
  const bool channels_last = is_channels_last(input, weight, p);
  at::Tensor output = empty_result(sizes, input, channels_last);
  if (output.numel() == 0) {
    check_empty_result(output, input, weight, p);
    return output;
  }
  const Detour detour(p.transposed ? output : input, p.transposed ? input : output, weight, p);
  if (channels_last && detour.planes && !are_planes({input, weight})) {
    return output.copy_(convolve_images(input.contiguous(), weight.contiguous(), bias, p, sizes));
  }
  const at::Tensor from = in_order(input, channels_last);
  if (const auto phases = ImagePhases::of(from, weight, p, channels_last)) {
    const at::Tensor apart = phases->apart(from);
    phases->together(output, convolve_images(apart, weight, bias, phases->parameters(),
                                             phases->result_sizes(apart, weight)));
    return output;
  }
  if (convolve_alone(output, from, weight, bias.value_or(at::Tensor()), p)) return output;
  if (computes_in_floats(input, ProductsOf::kConvolution) || (detour.floats && !p.transposed)) {
    const auto bias_in_floats = in_floats(bias.value_or(at::Tensor()));
    return output.copy_(
        convolve_images(in_floats(from), in_floats(weight), bias_in_floats, p, sizes));
  }
  check_dtype(input, p);
  const ConvolutionCut cut = cut_forward(output, from, weight, p.transposed, p.groups);
  // Nothing is gained from one block, or from blocks that leave the caches before they are done.
  constexpr std::size_t kMostBlockBytes = 4 << 20;
  const bool near =
      cut.count() > 1 && output.nbytes() / static_cast<std::size_t>(cut.count()) <= kMostBlockBytes;
  const Parameters of_part = is_long(cut, output, weight) ? for_parts(from, weight, p) : p;
  if (near) {
    launch_convolution(convolve_blocks, output, from, weight, bias, of_part, cut,
                       has_points(output));
  } else {
    launch("convolution", Custom{}, convolve_blocks, out(output), from, weight, bias, of_part, cut,
           has_points(output));
  }
  return output;
}

/// Signals are images of one row.
at::Tensor as_image(const at::Tensor& signals) {
  return signals.defined() ? signals.contiguous().unsqueeze(2) : signals;
}
Parameters as_image(const Parameters& p) {
  const auto list = [](std::int64_t first, const at::DimVector& values) {
    at::DimVector made{first};
    made.append(values.begin(), values.end());
    return made;
  };
  return {list(1, p.stride),         list(0, p.padding), list(1, p.dilation),
          list(0, p.output_padding), p.transposed,       p.groups};
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, std::int64_t groups) {
  check_same_type(input, weight, bias);
  at::DimVector sizes(
      transposed
          ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding,
                                        stride, dilation, groups)
          : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation));
  check_sizes(input.sizes(), sizes);
  const Parameters p = parameters(stride, padding, dilation, transposed, output_padding, groups);
  // oneDNN's kernels do not look at the stride of a bias.
  const std::optional<at::Tensor> shift =
      bias && bias->defined() ? std::optional(bias->contiguous()) : std::nullopt;
  if (input.dim() != 3) return convolve_images(input, weight, shift, p, sizes);
  sizes.insert(sizes.begin() + 2, 1);
  return convolve_images(as_image(input), as_image(weight), shift, as_image(p), sizes).squeeze(2);
}

/// The gradients that are asked for; others are undefined.
struct Gradients {
  at::Tensor input, weight, bias;
};

using GradientTuple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Those that need neither oneDNN nor ATen.
OwnGradients gradients_alone(const Gradients& to, const at::Tensor& grad, const at::Tensor& input,
                             const at::Tensor& weight, const Parameters& p) {
  const WindowSteps steps{p.stride, p.padding, p.dilation};
  if (!p.transposed) {
    return p.groups == 1
               ? launch_own_convolution_backward(to.input, to.weight, grad, input, weight, steps)
               : launch_depthwise_backward(to.input, to.weight, grad, input, weight, steps,
                                           p.groups);
  }
  OwnGradients made;
  if (p.groups != 1) return made;
  // The images are what is given as the gradient, and the other way round.
  made.input = to.input.defined() && launch_own_convolution(to.input, grad, weight, {}, steps);
  made.weight = to.weight.defined() &&
                launch_own_convolution_backward({}, to.weight, input, grad, weight, steps).weight;
  return made;
}

GradientTuple image_gradients(const at::Tensor& given_grad, const at::Tensor& given_input,
                              const at::Tensor& weight, const Parameters& p,
                              std::array<bool, 3> mask) {
  Gradients to;
  const bool channels_last = is_channels_last(given_input, weight, p);
  const Detour detour(p.transposed ? given_grad : given_input,
                      p.transposed ? given_input : given_grad, weight, p);
  if (const auto phases = ImagePhases::of(given_input, weight, p, channels_last);
      phases && given_grad.numel() != 0) {
    auto [to_input, to_weight, to_bias] = image_gradients(
        phases->apart(given_grad), phases->apart(given_input), weight, phases->parameters(), mask);
    if (mask[0]) {
      to.input = empty_result(given_input.sizes(), given_input, channels_last);
      phases->together(to.input, to_input);
    }
    return {to.input, to_weight, to_bias};
  }
  // oneDNN's kernels for gradients of weights read what is not theirs.
  const bool dilated = channels_last && given_input.scalar_type() == c10::kBFloat16 &&
                       *std::ranges::max_element(p.dilation) > 1;
  const bool weight_in_floats = (mask[1] || mask[2]) && (detour.floats_of_weight || dilated);
  if (weight_in_floats ||
      (channels_last && detour.planes && !are_planes({given_grad, given_input, weight}))) {
    const c10::ScalarType dtype = weight_in_floats ? c10::kFloat : weight.scalar_type();
    const auto plane = [&](const at::Tensor& operand) { return operand.to(dtype).contiguous(); };
    auto [to_input, to_weight, to_bias] =
        image_gradients(plane(given_grad), plane(given_input), plane(weight), p,
                        {mask[0] && !weight_in_floats, mask[1], mask[2]});
    if (mask[0] && weight_in_floats) {
      to_input =
          std::get<0>(image_gradients(given_grad, given_input, weight, p, {true, false, false}));
    }
    const auto as_it_lies = [&](const at::Tensor& made) {
      if (!made.defined()) return made;
      return empty_result(made.sizes(), given_input, channels_last).copy_(made);
    };
    return {as_it_lies(to_input), as_it_lies(to_weight), as_it_lies(to_bias)};
  }
  const at::Tensor grad = in_order(given_grad, channels_last);
  const at::Tensor input = in_order(given_input, channels_last);
  if (mask[0]) to.input = empty_result(input.sizes(), input, channels_last);
  if (mask[1]) to.weight = empty_result(weight.sizes(), input, channels_last);
  if (mask[2]) to.bias = empty({grad.size(1)}, grad.scalar_type(), grad.device());
  if (grad.numel() == 0) {
    for (const at::Tensor* zeros : {&to.input, &to.weight, &to.bias}) {
      if (zeros->defined()) zeros->zero_();
    }
    return {to.input, to.weight, to.bias};
  }
  if (!p.transposed && p.groups == 1 && is_plain(p.stride, p.padding) &&
      convolve_backward_as_product(to.input, to.weight, to.bias, grad, input, weight)) {
    return {to.input, to.weight, to.bias};
  }
  // What is left for oneDNN.
  Gradients other = to;
  const OwnGradients made = gradients_alone(to, grad, input, weight, p);
  if (made.input) other.input.reset();
  if (made.weight) other.weight.reset();
  if (other.bias.defined() && (made.input || made.weight)) {
    sum_over_pixels(other.bias, grad);
    other.bias.reset();
  }
  const std::array<bool, 3> left{other.input.defined(), other.weight.defined(),
                                 other.bias.defined()};
  if (std::ranges::none_of(left, std::identity())) return {to.input, to.weight, to.bias};
  if (computes_in_floats(grad, ProductsOf::kConvolution)) {
    const auto [to_input, to_weight, to_bias] =
        image_gradients(in_floats(grad), in_floats(input), in_floats(weight), p, left);
    if (left[0]) other.input.copy_(to_input);
    if (left[1]) other.weight.copy_(to_weight);
    if (left[2]) other.bias.copy_(to_bias);
  } else {
    const ConvolutionCut cut = cut_backward(grad, input, weight, p.transposed, p.groups,
                                            other.weight.defined() || other.bias.defined());
    launch_on(grad.device(), "convolution_backward", Custom{}, convolve_backward_blocks,
              out(other.input), out(other.weight), out(other.bias), grad, input, weight,
              is_long(cut, grad, weight) ? for_parts(input, weight, p) : p, cut);
  }
  return {to.input, to.weight, to.bias};
}

GradientTuple convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                                   const at::Tensor& weight, c10::IntArrayRef stride,
                                   c10::IntArrayRef padding, c10::IntArrayRef dilation,
                                   bool transposed, c10::IntArrayRef output_padding,
                                   std::int64_t groups, std::array<bool, 3> mask) {
  const Parameters p = parameters(stride, padding, dilation, transposed, output_padding, groups);
  if (input.dim() != 3) return image_gradients(grad, input, weight, p, mask);
  auto [to_input, to_weight, to_bias] =
      image_gradients(as_image(grad), as_image(input), as_image(weight), as_image(p), mask);
  const auto signals = [](const at::Tensor& images) {
    return images.defined() ? images.squeeze(2) : images;
  };
  return {signals(to_input), signals(to_weight), to_bias};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace loom::ops
