// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Normalisation of rows that are turned (turned_rows.h), and its gradient, in float32 whatever the
// elements are: float or a half type. Thread: any; only what is passed is touched.

#include "loom/kernels/norm/turned_rows.h"
#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

/// What elements become: (x - mean) * rstd * factor + term.
struct TurnedNorm {
  const float *factors, *terms;  ///< of the rows, or else of the columns
  bool of_rows;  ///< and of a row whose elements are all the same rstd is 0, not infinity
  double eps;
};

/// Of kTurnedRows rows each; `squares`: the sums of squares of distances from the mean.
struct TurnedStatistics {
  float mean[kTurnedRows], squares[kTurnedRows], rstd[kTurnedRows];
};

/// Of kTurnedRows rows each: what they were normalised by, and sums of grad and of
/// grad * (x - mean) * rstd.
struct TurnedGradient {
  float mean[kTurnedRows], rstd[kTurnedRows], factors[kTurnedRows];
  float sums[kTurnedRows], products[kTurnedRows];
};

LOOM_SIMD_DECLARE(template <class T>
                  void normalise_turned(T* values, std::int64_t columns, const TurnedNorm& norm,
                                        TurnedStatistics& found) noexcept;
                  template <class T>
                  void turned_norm_gradient(T* grad, const T* values, std::int64_t columns,
                                            TurnedGradient& by) noexcept;)

/// In place.
template <class T>
inline constexpr simd::Versions normalise_turned{LOOM_SIMD_LIST(normalise_turned<T>)};

/// Makes the gradient of the elements of that of the results, in place.
template <class T>
inline constexpr simd::Versions turned_norm_gradient{LOOM_SIMD_LIST(turned_norm_gradient<T>)};

}  // namespace loom::kernels::norm
