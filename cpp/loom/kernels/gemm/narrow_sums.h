// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The product of two matrices of many rows and few columns, the first of them transposed, in
// float32: all sums stay in registers while rows are read once, where they lie.
// Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// Columns that each of the matrices may have.
inline constexpr std::int64_t kMaxNarrowSums = 16;

/// to[a * kMaxNarrowSums + b] += the sum over `rows` of left[row * left_row + a * left_column] *
/// right[row * right_row + b]. Whatever lies in `to` beyond the columns of `right` may change.
/// Requires: 1 to kMaxNarrowSums columns of each.
struct NarrowSums {
  std::int64_t rows, left_columns, right_columns;
  const float* left;
  std::int64_t left_row, left_column;
  const float* right;
  std::int64_t right_row;
  float* to;
};

LOOM_SIMD_VERSIONS(add_narrow_sums, void(const NarrowSums& sums) noexcept);

}  // namespace loom::kernels::gemm
