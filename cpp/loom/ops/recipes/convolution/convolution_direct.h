// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Convolutions by Winograd's algorithm unless the magnitudes of their operands spread too far for
// it (product/magnitudes.h): then the same by an algorithm without transforms. Thread: the worker.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/magnitudes.h"

namespace loom::ops {

/// result = images (*) weights + bias by oneDNN, as convolve_winograd() takes them, in both
/// layouts.
void convolve_directly(Grid& grid, const TensorRef& result, const TensorRef& images,
                       const TensorRef& weights, const TensorRef& bias, const Windows& windows);

/// The gradient of the images; `windows` is turned_windows() of the convolution.
void image_gradient_directly(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                             const TensorRef& weights, const Windows& windows);
void image_gradient_directly_bfloat16(Grid& grid, const TensorRef& result,
                                      const TensorRef& gradient, const TensorRef& weights,
                                      const Windows& windows, bool weights_last);

/// As convolve_winograd_strided(): operators may follow.
void convolve_strided_directly(Grid& grid, const TensorRef& result, const TensorRef& images,
                               const TensorRef& weights, const TensorRef& bias,
                               const Windows& windows, bool weights_last);

/// A kernel with transforms, and one without.
template <class T, auto kTransformed, auto kDirect>
struct UnlessSpread {
  template <class... More>
  void operator()(Grid& grid, const TensorRef& result, const TensorRef& images,
                  const TensorRef& weights, const More&... more) const {
    if (convolution_spreads<T>(grid, images, weights)) [[unlikely]] {
      kDirect(grid, result, images, weights, more...);
    } else {
      kTransformed(grid, result, images, weights, more...);
    }
  }
};

}  // namespace loom::ops
