// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Many rows times a matrix of few columns and few inner elements, in float32: the matrix stays in
// registers, elements of a row are spread over its columns one after the other, and a row of the
// result is one store. Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// Columns of a packed matrix: a vector of AVX-512, or two of AVX2.
inline constexpr std::int64_t kNarrowColumns = 16;
/// Inner elements up to which the matrix is kept in registers.
inline constexpr std::int64_t kNarrowInner = 16;

/// left[row * row_stride + k * column_stride] x right[k * kNarrowColumns + column], added to a row
/// of kNarrowColumns elements, to what is there, or to nothing. Requires: 1 to kNarrowInner inner
/// elements, 1 to kNarrowColumns columns.
struct NarrowRows {
  std::int64_t rows, inner, columns;
  const float* left;
  std::int64_t row_stride, column_stride;
  const float* right;
  float* to;
  std::int64_t ld;    ///< from row to row of `to`
  const float* bias;  ///< or null
  bool add;           ///< to what is there; then there is no bias
};

LOOM_SIMD_VERSIONS(multiply_narrow, void(const NarrowRows& product) noexcept);

}  // namespace loom::kernels::gemm
