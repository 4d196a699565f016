// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/convolution/convolution_product.h"

#include "loom/ops/recipes/product/blocked_product.h"

#include <ATen/ops/sum.h>

namespace loom::ops {
namespace {

bool has_single_weights(const at::Tensor& weight) {
  return weight.numel() == weight.size(0) * weight.size(1) && weight.is_contiguous();
}

bool is_channels_last(const at::Tensor& tensor) {
  const c10::MemoryFormat format =
      tensor.dim() == 5 ? c10::MemoryFormat::ChannelsLast3d : c10::MemoryFormat::ChannelsLast;
  return tensor.dim() >= 4 && tensor.is_contiguous(format);
}

std::int64_t pixels(const at::Tensor& tensor) {
  return tensor.numel() / (tensor.size(0) * tensor.size(1));
}

/// Samples x channels x pixels of a tensor that is contiguous.
at::Tensor planes(const at::Tensor& tensor) {
  const std::int64_t count = pixels(tensor), channels = tensor.size(1);
  return tensor.as_strided({tensor.size(0), channels, count}, {channels * count, count, 1});
}

/// Pixels of all samples x channels of a tensor in channels_last.
at::Tensor points(const at::Tensor& tensor) {
  const std::int64_t channels = tensor.size(1);
  return tensor.as_strided({tensor.size(0) * pixels(tensor), channels}, {channels, 1});
}

at::Tensor matrix(const at::Tensor& weight) {
  return weight.as_strided({weight.size(0), weight.size(1)}, {weight.size(1), 1});
}

bool suits_product(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right) {
  return suits_blocked_product(result, left, right, ProductsOf::kConvolution);
}

// In bfloat16 images of an odd number of pixels, fewer than a panel has, are faster by rows that
// are pixels (convolve_pixels.h).
bool are_too_few(const at::Tensor& images) {
  const std::int64_t count = pixels(images);
  return images.scalar_type() == c10::ScalarType::BFloat16 && has_bfloat16_kernel() &&
         count % 2 != 0 && count < kPanel;
}

bool launch_product(const char* name, const at::Tensor& result, const at::Tensor& addend,
                    const at::Tensor& left, const at::Tensor& right, ProductOptions options) {
  if (!suits_product(result, left, right)) return false;
  if (addend.defined() && addend.scalar_type() != result.scalar_type()) return false;
  launch_blocked_product(name, result, addend, left, right, options);
  return true;
}

}  // namespace

bool convolve_as_product(const at::Tensor& output, const at::Tensor& input,
                         const at::Tensor& weight, const at::Tensor& bias) {
  if (!has_single_weights(weight)) return false;
  const ProductOptions options{.beta = bias.defined() ? 1.0 : 0.0};
  if (input.is_contiguous() && output.is_contiguous()) {
    if (are_too_few(input)) return false;
    const at::Tensor left = matrix(weight).expand({input.size(0), -1, -1});
    const at::Tensor added = bias.defined() ? bias.unsqueeze(1) : bias;
    return launch_product("convolution", planes(output), added, left, planes(input), options);
  }
  if (!is_channels_last(input) || !is_channels_last(output)) return false;
  return launch_product("convolution", points(output), bias, points(input), matrix(weight).t(),
                        options);
}

void sum_over_pixels(const at::Tensor& bias_gradient, const at::Tensor& grad) {
  at::DimVector dims{0};
  for (std::int64_t d = 2; d < grad.dim(); ++d) dims.push_back(d);
  at::Tensor result = bias_gradient;
  at::sum_out(result, grad, dims);
}

bool convolve_backward_as_product(const at::Tensor& input_gradient,
                                  const at::Tensor& weight_gradient,
                                  const at::Tensor& bias_gradient, const at::Tensor& grad,
                                  const at::Tensor& input, const at::Tensor& weight) {
  if (!has_single_weights(weight) || grad.scalar_type() != c10::ScalarType::Float) return false;
  if (grad.numel() == 0 || weight.numel() == 0) return false;
  if (weight_gradient.defined() && !weight_gradient.is_contiguous()) return false;
  const bool in_planes = grad.is_contiguous() && input.is_contiguous() &&
                         (!input_gradient.defined() || input_gradient.is_contiguous());
  if (!in_planes && !(is_channels_last(grad) && is_channels_last(input) &&
                      (!input_gradient.defined() || is_channels_last(input_gradient)))) {
    return false;
  }
  const at::Tensor deltas = in_planes ? planes(grad) : points(grad);
  const at::Tensor values = in_planes ? planes(input) : points(input);
  const at::Tensor filters = matrix(weight);
  struct Product {
    at::Tensor result, left, right;
    ProductOptions options;
  };
  Product by_input, by_weight;
  if (input_gradient.defined()) {
    by_input = in_planes ? Product{planes(input_gradient),
                                   filters.t().expand({grad.size(0), -1, -1}),
                                   deltas,
                                   {}}
                         : Product{points(input_gradient), deltas, filters, {}};
    if (!suits_product(by_input.result, by_input.left, by_input.right)) return false;
  }
  if (weight_gradient.defined()) {
    const at::Tensor result = matrix(weight_gradient);
    by_weight = in_planes ? Product{result.expand({grad.size(0), -1, -1}),
                                    deltas,
                                    values.transpose(1, 2),
                                    {.sums_batch = true}}
                          : Product{result, deltas.t(), values, {}};
    if (!suits_product(by_weight.result, by_weight.left, by_weight.right)) return false;
  }
  for (const Product* product : {&by_input, &by_weight}) {
    if (!product->result.defined()) continue;
    launch("convolution_backward", Custom{}, blocked_product, out(product->result), at::Tensor(),
           product->left, product->right, product->options);
  }
  if (bias_gradient.defined()) sum_over_pixels(bias_gradient, grad);
  return true;
}

}  // namespace loom::ops
