// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Two-dimensional convolutions of float32 images so small that many taps of the windows lie beside
// them: of 2x2 pixels a 3x3 window sees 4 of 9. Each tap is a product of its own, with the pixels
// that see something through it, so that nothing is multiplied with padding. The weights are turned
// piece by piece in the cache, and read once.
// Tensors are dense: images (batch, channels, y, x), weights (filters, channels, y, x). How they
// are cut depends on shapes only, and nothing is added up between blocks. Thread: the worker.
// Requires: can_multiply<float>(), suits_taps().

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// True where this is faster than products with columns.
[[nodiscard]] bool suits_taps(const Windows& windows, std::int64_t filters);

/// result = images (*) weights + bias, if the bias is defined.
void convolve_taps(Grid& grid, const TensorRef& result, const TensorRef& images,
                   const TensorRef& weights, const TensorRef& bias, const Windows& windows);

/// The gradient of the images from that of the result.
void taps_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                         const TensorRef& weights, const Windows& windows);

/// The gradient of the weights from that of the result.
void taps_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                          const TensorRef& images, const Windows& windows);

}  // namespace loom::ops
