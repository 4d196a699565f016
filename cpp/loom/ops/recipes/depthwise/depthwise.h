// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Depthwise convolutions, in which every channel of the images is a group: they move as much memory
// as a pointwise operator and multiply little, so vectors of our own run them, of pixels in the
// default layout, of channels in channels_last (kernels/conv/depthwise.h). float32 and bfloat16;
// sums are float32. How they are cut depends on shapes only, and each sum is one core's. Thread:
// launch_ functions the caller's, the others the worker's.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/convolution/convolution_choice.h"
#include "loom/ops/recipes/product/columns.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace loom::ops {

/// True if it was launched. `bias` may be undefined; it is not transposed.
[[nodiscard]] bool launch_depthwise(const at::Tensor& output, const at::Tensor& input,
                                    const at::Tensor& weight, const at::Tensor& bias,
                                    const WindowSteps& steps, std::int64_t groups);

/// Gradients that are not wanted are undefined; it is not transposed.
[[nodiscard]] OwnGradients launch_depthwise_backward(const at::Tensor& input_gradient,
                                                     const at::Tensor& weight_gradient,
                                                     const at::Tensor& grad,
                                                     const at::Tensor& input,
                                                     const at::Tensor& weight,
                                                     const WindowSteps& steps, std::int64_t groups);

/// Whether depthwise_planes() and depthwise_turned_planes() make a plane of the result from the
/// same plane of the images, which has as many pixels, and finish whole planes.
[[nodiscard]] bool reads_own_planes(const Windows& windows, std::int64_t filters) noexcept;

/// result = images (*) weights + bias in the default layout, if the bias is defined; each channel
/// has as many filters as the result has times its channels.
void depthwise_planes(Grid& grid, const TensorRef& result, const TensorRef& images,
                      const TensorRef& weights, const TensorRef& bias, const Windows& windows);

/// The gradients of the images and of the weights from that of the result, in the default layout,
/// with a filter for each channel. Requires of the former: a stride or a dilation of 1.
void depthwise_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                              const TensorRef& weights, const Windows& windows);
void depthwise_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                               const TensorRef& images, const Windows& windows);

/// All three in channels_last, with a filter for each channel.
void depthwise_last(Grid& grid, const TensorRef& result, const TensorRef& images,
                    const TensorRef& weights, const TensorRef& bias, const Windows& windows);
void depthwise_last_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                                   const TensorRef& weights, const Windows& windows);
void depthwise_last_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                                    const TensorRef& images, const Windows& windows);

}  // namespace loom::ops
