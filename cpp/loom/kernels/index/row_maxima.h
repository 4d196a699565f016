// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The largest elements of rows that lie anywhere, column by column: bags of embeddings. Thread:
// any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::index {

LOOM_SIMD_DECLARE(template <class T> void row_maxima(const T* const* rows, std::int32_t count,
                                                     std::int64_t columns, T* to,
                                                     std::int32_t* which) noexcept;)

/// to[c] = the largest rows[r][c] of `count` rows, and which[c] = the first r that has it. What is
/// not a number is larger than nothing, but stays in row 0. T: float, simd::BFloat16, simd::Half.
/// Requires: count > 0.
template <class T>
inline constexpr simd::Versions row_maxima{LOOM_SIMD_LIST(row_maxima<T>)};

}  // namespace loom::kernels::index
