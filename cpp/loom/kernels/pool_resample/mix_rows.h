// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows that are weighted sums of other rows. T: float, simd::BFloat16, simd::Half. Thread: any;
// only what is passed is touched, and `to` overlaps with nothing else.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::pool_resample {

LOOM_SIMD_DECLARE(template <class T>
                  void mix_to_floats(const T* const* rows, const float* weights, std::int64_t mixed,
                                     std::int64_t count, float* to) noexcept;
                  template <class T>
                  void mix_floats(const float* const* rows, const float* weights,
                                  std::int64_t mixed, std::int64_t count, T* to) noexcept;)

/// to[i] = the sum of weights[r] * rows[r][i] over `mixed` rows, in their order, rounded in
/// the same way wherever i is; 0 of no rows.
template <class T>
inline constexpr simd::Versions mix_to_floats{LOOM_SIMD_LIST(mix_to_floats<T>)};
/// The same of floats, rounded once.
template <class T>
inline constexpr simd::Versions mix_floats{LOOM_SIMD_LIST(mix_floats<T>)};

}  // namespace loom::kernels::pool_resample
