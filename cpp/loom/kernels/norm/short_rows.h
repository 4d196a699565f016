// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Softmax and log-softmax of dense rows of few columns, some rows at a time: they are turned, so
// that vectors are full. A row of few elements costs what it is begun with. T: float or
// simd::BFloat16. Thread: any; only what is passed is touched.

#include "loom/kernels/norm/softmax.h"

#include <cstdint>

namespace loom::kernels::norm {

/// Longer rows are as fast by themselves.
inline constexpr std::int64_t kShortRow = 24;

/// Floats of room that the functions below need, at a multiple of 64 bytes.
[[nodiscard]] constexpr std::int64_t short_rows_room(std::int64_t columns) noexcept {
  return (2 * columns + 2) * kTurnedRows;
}

/// `to` may be `from`.
template <class T>
void softmax_short_rows(T* to, const T* from, std::int64_t rows, std::int64_t columns,
                        bool logarithm, float* room) noexcept;

/// Softmax, and each row's maximum and sum of exp(x - maximum). `to` may be null.
void softmax_short_rows(float* to, const float* from, std::int64_t rows, std::int64_t columns,
                        float* maxima, float* sums, float* room) noexcept;

}  // namespace loom::kernels::norm
