// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Depthwise convolutions of a plane where it lies, with square windows of 3, 5 or 7 taps a side:
// vectors of pixels, in which lanes beside the plane are masked. Nothing is laid out before, so
// that planes of short rows cost little more than their products. Thread: any; only what is passed
// is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

/// A plane without gaps, and the rows [first, last) of its result.
struct DirectPlane {
  std::int64_t rows, columns;         ///< of the plane
  std::int64_t padding_y, padding_x;  ///< may be negative
  std::int64_t kernel, stride;        ///< 3, 5 or 7; 1 or 2
  std::int64_t first, last;
  std::int64_t result_columns, step;  ///< from a row of the result to the next
};

[[nodiscard]] constexpr bool has_direct_depthwise(std::int64_t kernel,
                                                  std::int64_t stride) noexcept {
  return (kernel == 3 || kernel == 5 || kernel == 7) && (stride == 1 || stride == 2);
}

/// to[y * step + x] = bias + the sum of weights[i * kernel + j] * image[y * stride - padding_y + i,
/// x * stride - padding_x + j] for the taps that see the plane in y; those that do not in x are
/// multiplied with zeros. Requires: has_direct_depthwise().
LOOM_SIMD_VERSIONS(depthwise_direct, void(const float* image, const float* weights, float bias,
                                          const DirectPlane& plane, float* to) noexcept);

}  // namespace loom::kernels::conv
