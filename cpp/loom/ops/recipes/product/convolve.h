// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Two-dimensional convolutions of float32 as products with columns that are made on the way
// (implicit GEMM). The weights are read as they lie, where oneDNN reorders them in every call: for
// small images that is most of its work. How they are cut depends on shapes only, and nothing is
// added up between blocks.
// Tensors are dense: images (batch, channels, y, x), weights (filters, channels, y, x); for the
// result of images all of them may be in channels_last instead (Windows::channels_last).
// Thread: the worker. Requires: can_multiply<float>(), nothing is empty.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

namespace loom::ops {

/// result = images (*) weights + bias, if the bias is defined.
void convolve_columns(Grid& grid, const TensorRef& result, const TensorRef& images,
                      const TensorRef& weights, const TensorRef& bias, const Windows& windows);

/// The gradient of the weights from that of the result.
void convolve_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                              const TensorRef& images, const Windows& windows);

/// The gradient of the images from that of the result.
void convolve_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                             const TensorRef& weights, const Windows& windows);
/// The same with a number of each channel added, as a transposed convolution has it. Images may be
/// in channels_last, and the weights in that order or in the other one.
void convolve_transposed(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                         const TensorRef& weights, const TensorRef& bias, const Windows& windows,
                         bool weights_last);

}  // namespace loom::ops
