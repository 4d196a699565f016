// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// 3x3 convolutions with stride 1 of float32 by Winograd's F(2x2, 3x3): 4x4 tiles of the images and
// the weights are transformed, so that 2x2 pixels of the result take 16 products instead of 36.
// The error is of the size of a plain convolution's.
// Thread: the worker.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// True if it is faster than other ways, in the default layout or in channels_last.
[[nodiscard]] bool suits_winograd(const Windows& windows, std::int64_t filters);
[[nodiscard]] bool suits_winograd_last(const Windows& windows, std::int64_t filters);

/// result = images (*) weights + bias, if the bias is defined. Tensors are dense: images (batch,
/// channels, y, x), weights (filters, channels, 3, 3). Requires: can_multiply<float>(),
/// suits_winograd().
void convolve_winograd(Grid& grid, const TensorRef& result, const TensorRef& images,
                       const TensorRef& weights, const TensorRef& bias, const Windows& windows);

/// The same with weights (channels, filters, 3, 3) that are turned by half a circle: the gradient
/// of a convolution's images from that of its result, `windows` being turned_windows() of it.
void convolve_winograd_turned(Grid& grid, const TensorRef& result, const TensorRef& images,
                              const TensorRef& weights, const Windows& windows);

/// The gradient of the weights from that of the result. An infinity or NaN may reach all taps of
/// its channel and filter: direct_gradient.h.
void winograd_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                              const TensorRef& images, const Windows& windows);

/// The three in channels_last: tensors are (batch, y, x, channels) in memory, but weights that are
/// read may be of either layout. Requires: suits_winograd_last().
void convolve_winograd_last(Grid& grid, const TensorRef& result, const TensorRef& images,
                            const TensorRef& weights, const TensorRef& bias,
                            const Windows& windows);
void convolve_winograd_last_turned(Grid& grid, const TensorRef& result, const TensorRef& images,
                                   const TensorRef& weights, const Windows& windows);
void winograd_last_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                                   const TensorRef& images, const Windows& windows);

/// The convolution that makes the gradient of the images of a convolution with stride 1.
[[nodiscard]] Windows turned_windows(const Windows& windows, std::int64_t filters);

}  // namespace loom::ops
