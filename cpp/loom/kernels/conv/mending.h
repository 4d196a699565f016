// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What finds elements of convolutions that are not finite, and computes them again. Thread: any.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

#define LOOM_ALL_FINITE(T) bool all_finite(const T* data, std::int64_t count) noexcept;
LOOM_SIMD_DECLARE(LOOM_ALL_FINITE(float) LOOM_ALL_FINITE(simd::BFloat16))
#undef LOOM_ALL_FINITE

/// Whether there is neither an infinity nor a NaN. T: float, simd::BFloat16.
template <class T>
inline constexpr simd::Versions<bool(const T* data, std::int64_t count) noexcept> all_finite{
    LOOM_SIMD_LIST(all_finite)};

/// What masked_dot() takes at once.
inline constexpr std::int64_t kMaskedStep = 64;

/// The sum of those products whose bits in `inside` are set. Requires: `count` is a multiple of
/// kMaskedStep.
LOOM_SIMD_VERSIONS(masked_dot, float(const float* window, const float* weights,
                                     const std::int32_t* inside, std::int64_t count) noexcept);

/// The sum of a[i] * b[i * step] in double precision, where a product is exact.
LOOM_SIMD_VERSIONS(exact_dot, double(const float* a, const float* b, std::int64_t count,
                                     std::int64_t step) noexcept);

}  // namespace loom::kernels::conv
