// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Two-dimensional convolutions of bfloat16 as products whose rows are pixels and whose columns are
// filters. Rows of the images are turned, unless they lie so, to have the channels of a pixel side
// by side. Then what a pixel sees of one row of its window is one run of memory, and so is what its
// neighbour sees, a few elements further: rows of the left operand overlap, and no columns are
// made. Where runs or rows are short, windows are put together from their pieces. Sums are of
// float32, rounded once. How they are cut depends on shapes only. Thread: the worker;
// suits_pixels() any.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// True if it is faster than oneDNN, or about as fast.
[[nodiscard]] bool suits_pixels(const Windows& windows, std::int64_t filters, bool weights_last);

/// result = images (*) weights + bias, if the bias is defined. Result and images are dense, in the
/// order of their dimensions or both in channels_last (Windows::channels_last); so are weights: if
/// `weights_last` the channels of a tap are side by side. Requires: bfloat16,
/// can_multiply<c10::BFloat16>(), suits_pixels(), nothing is empty.
void convolve_pixels(Grid& grid, const TensorRef& result, const TensorRef& images,
                     const TensorRef& weights, const TensorRef& bias, const Windows& windows,
                     bool weights_last);

}  // namespace loom::ops
