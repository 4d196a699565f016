// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Statistics of a row in float64, for rows whose squares leave the range of float32. Included once
// for each instruction set. Thread: any; only what is passed is read.

#include "loom/simd/half.h"

#include <cstdint>

namespace loom::kernels::norm {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

/// `squares`: the sum of the squares of the distances from the mean.
struct WideStatistics {
  double mean, squares;
};

/// True if the squares of a row left the range of float32: some are infinite, or, where eps does
/// not outweigh them, so small that they have lost digits.
[[gnu::always_inline]] inline bool needs_wide_statistics(double variance, double eps) noexcept {
  // Of squares less than this on average float32 may have lost digits, or flushed them to zero: its
  // least normal number is 1.2e-38, and a millionth of the square that counts is enough.
  constexpr double kLeastSquare = 1e-30;
  return !__builtin_isfinite(variance) || (variance < kLeastSquare && eps < kLeastSquare);
}

/// Of `columns` elements, `stride` elements apart. The mean is infinite if one element is.
template <class T>
WideStatistics wide_statistics(const T* values, std::int64_t stride,
                               std::int64_t columns) noexcept {
  WideStatistics found{0, 0};
  for (std::int64_t c = 0; c < columns; ++c) {
    found.mean += static_cast<double>(simd::widen(values[c * stride]));
  }
  found.mean /= static_cast<double>(columns);
  if (!__builtin_isfinite(found.mean)) return {found.mean, __builtin_nan("")};
  for (std::int64_t c = 0; c < columns; ++c) {
    const double distance = static_cast<double>(simd::widen(values[c * stride])) - found.mean;
    found.squares += distance * distance;
  }
  return found;
}

}  // namespace
}  // namespace loom::kernels::norm
