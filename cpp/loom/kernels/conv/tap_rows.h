// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows of the columns of a convolution (im2col and col2im): what the pixels of its result see of an
// image at one tap of the window. Numbers are float32. Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

/// Neighbours in a row: their place in the images (in the first channel) and in a row of columns.
struct Piece {
  std::int64_t image, column, count;
};

/// One tap of several channels: `image` and `column` are those of the first, and are followed by
/// the next ones in so many elements.
struct TapRows {
  std::int64_t channels, image_step, column_step;
  const Piece* pieces;
  std::int64_t count;
  std::int64_t zeros;  ///< so many elements of each row are set to 0 first
  std::int64_t step;   ///< from one pixel's element of the image to the next one's
};

/// Copies the pieces of each channel from `image` to `column`.
LOOM_SIMD_VERSIONS(make_rows, void(const float* image, const TapRows& tap, float* column) noexcept);
/// Adds the pieces of `column` to where make_rows() takes them from; `zeros` counts for nothing.
LOOM_SIMD_VERSIONS(add_rows, void(const float* column, const TapRows& tap, float* image) noexcept);

}  // namespace loom::kernels::conv
