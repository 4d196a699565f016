// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Depthwise convolutions of small planes in the default layout, some planes at a time, which are
// turned so that vectors run along channels (kernels/conv/depthwise_turned.h).
// Thread: the worker.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// Whether rows are too short for vectors of pixels (depthwise_plane.h).
[[nodiscard]] bool suits_turned_planes(const Windows& windows) noexcept;

/// As depthwise_planes(), with a filter for each channel. Requires: suits_turned_planes().
void depthwise_turned_planes(Grid& grid, const TensorRef& result, const TensorRef& images,
                             const TensorRef& weights, const TensorRef& bias,
                             const Windows& windows);

/// The gradient of the images, of a convolution with stride 1.
void depthwise_turned_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                               const TensorRef& weights, const Windows& windows);

}  // namespace loom::ops
