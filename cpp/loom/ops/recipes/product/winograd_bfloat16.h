// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// 3x3 convolutions with stride 1 of bfloat16 by Winograd's F(4x4, 3x3) in float32: tiles of 6x6
// pixels and the weights are transformed, so that 4x4 pixels of the result take 36 products instead
// of 144, which makes up for float32's half speed. What is rounded is the result, once: the error
// of the transforms, some 1e-6 of the tile's largest elements, is far below that.
// Formulas: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
// Thread: the worker; suits_...() any.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// True if it is faster than other ways, for a convolution and for the gradient of its weights;
/// never where bfloat16_is_far_faster() (kernels/gemm/matrix_unit.h).
[[nodiscard]] bool suits_winograd_bfloat16(const Windows& windows, std::int64_t filters);
[[nodiscard]] bool suits_winograd_bfloat16_weights(const Windows& windows, std::int64_t filters);

/// result = images (*) weights + bias, if the bias is defined. Operands lie as those of
/// convolve_pixels(). Requires: bfloat16, can_multiply<float>(), can_multiply<c10::BFloat16>(),
/// suits_winograd_bfloat16().
void convolve_winograd_bfloat16(Grid& grid, const TensorRef& result, const TensorRef& images,
                                const TensorRef& weights, const TensorRef& bias,
                                const Windows& windows, bool weights_last);

/// The same with weights (channels, filters, 3, 3) that are turned by half a circle: the gradient
/// of a convolution's images from that of its result, `windows` being turned_windows() of it.
void convolve_winograd_bfloat16_turned(Grid& grid, const TensorRef& result, const TensorRef& images,
                                       const TensorRef& weights, const Windows& windows,
                                       bool weights_last);

/// The gradient of the weights; `weights_last`: its channels are last in memory. Requires:
/// bfloat16, can_multiply<float>(), can_multiply<c10::BFloat16>(),
/// suits_winograd_bfloat16_weights(). An infinity or NaN reaches all taps of its channel and
/// filter.
void winograd_bfloat16_weight_gradient(Grid& grid, const TensorRef& result,
                                       const TensorRef& gradient, const TensorRef& images,
                                       const Windows& windows, bool weights_last);

}  // namespace loom::ops
