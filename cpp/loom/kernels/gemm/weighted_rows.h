// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums of weighted rows of a matrix, in float32: a product with a vector on the left, whose rows
// are read in order. T: float, simd::BFloat16, simd::Half. Thread: any; only what is passed is
// touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

LOOM_SIMD_DECLARE(template <class T> void add_weighted_rows(const T* from, std::int64_t row_stride,
                                                            const float* weights, std::int64_t rows,
                                                            std::int64_t columns,
                                                            float* sums) noexcept;)

/// add_weighted_rows(from, row_stride, weights, rows, columns, sums): sums[c] += the sum of
/// weights[r] * from[r * row_stride + c].
template <class T>
inline constexpr simd::Versions add_weighted_rows{LOOM_SIMD_LIST(add_weighted_rows<T>)};

}  // namespace loom::kernels::gemm
