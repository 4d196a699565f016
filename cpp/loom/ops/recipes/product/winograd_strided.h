// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// 7x7 convolutions with stride 2 of float32, first layers most of all. Even and odd rows and
// columns of the images are images of their own, with windows of 4x4, 4x3, 3x4 and 3x3 taps and
// stride 1; their sum is made by Winograd's F(2x2, 4x4): 2x2 pixels of the result take 81 products
// of a channel instead of 196. The error is twice that of a plain convolution. Formulas: A. Lavin,
// S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015; those of four taps by Toom and
// Cook's construction with the points 0, 1, -1, 2 and infinity. Thread: the worker; suits_...()
// any.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// True if it is faster than other ways.
[[nodiscard]] bool suits_winograd_strided(const Windows& windows, std::int64_t filters);

/// result = images (*) weights + bias, if the bias is defined. Images and result are dense in the
/// order of their dimensions or in channels_last, as `windows` says; so are weights, as
/// `weights_last` says. Requires: can_multiply<float>(), suits_winograd_strided().
void convolve_winograd_strided(Grid& grid, const TensorRef& result, const TensorRef& images,
                               const TensorRef& weights, const TensorRef& bias,
                               const Windows& windows, bool weights_last);

}  // namespace loom::ops
