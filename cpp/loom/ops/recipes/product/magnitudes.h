// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How far the magnitudes of a convolution's operands spread. Winograd's transforms add elements of
// a tile, and weights of a filter, to each other: their rounding errors are those of the largest
// ones, where a plain convolution has those of the products that it sums up. That makes no
// difference while most elements that are not zero are of one order of magnitude. Thread: the
// worker.

#include "loom/ops/launch/launch.h"

#include <cstdint>

namespace loom::ops {

/// Whether a transformed convolution of these images and weights might be less precise than a plain
/// one: elements of an image or of a filter spread too far, or weights are so small that the
/// transforms' factors make them subnormal. Requires: dense, dimension 0 is the outermost one.
/// T: float or c10::BFloat16.
template <class T>
[[nodiscard]] bool convolution_spreads(Grid& grid, const TensorRef& images,
                                       const TensorRef& weights);

/// The same of the gradient of the weights.
template <class T>
[[nodiscard]] bool weight_gradient_spreads(Grid& grid, const TensorRef& images,
                                           const TensorRef& gradient);

}  // namespace loom::ops
