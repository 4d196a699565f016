// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums of weighted rows of a matrix: a product with a vector on the left, whose rows are read in
// order. T: float, simd::BFloat16, simd::Half, which are summed up in float32, and double. Thread:
// any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// What weights and sums are of.
template <class T>
using WeightedSum = decltype(simd::widen(T()));

LOOM_SIMD_DECLARE(template <class T> void add_weighted_rows(const T* from, std::int64_t row_stride,
                                                            const WeightedSum<T>* weights,
                                                            std::int64_t rows, std::int64_t columns,
                                                            WeightedSum<T>* sums) noexcept;)

/// add_weighted_rows(from, row_stride, weights, rows, columns, sums): sums[c] += the sum of
/// weights[r] * from[r * row_stride + c].
template <class T>
inline constexpr simd::Versions add_weighted_rows{LOOM_SIMD_LIST(add_weighted_rows<T>)};

}  // namespace loom::kernels::gemm
