// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Two-dimensional convolutions of float32 images in channels_last that have few channels, as those
// of a first layer. What a pixel of the result sees of one row of its window is one run of memory,
// and so is what its neighbour sees, a few elements further: the left operand's rows overlap, and
// neither columns nor sums are put anywhere else. How they are cut depends on shapes only.
// Thread: the worker; suits_runs() any.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// True if it is faster than oneDNN, or about as fast.
[[nodiscard]] bool suits_runs(const Windows& windows);

/// result = images (*) weights + bias, if the bias is defined. Requires: float32 in channels_last,
/// can_multiply<float>(), suits_runs(), nothing is empty.
void convolve_runs(Grid& grid, const TensorRef& result, const TensorRef& images,
                   const TensorRef& weights, const TensorRef& bias, const Windows& windows);

}  // namespace loom::ops
