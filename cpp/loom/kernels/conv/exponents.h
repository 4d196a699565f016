// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How large the elements of a convolution's operands are. Thread: any.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

/// Exponents of finite elements: zeros and subnormal numbers count for nothing.
struct Exponents {
  std::int64_t sum = 0, count = 0;
  std::int64_t largest = 0;  ///< biased as float's are; 0 if there is none

  [[gnu::always_inline]] void add(const Exponents& other) noexcept {
    sum += other.sum;
    count += other.count;
    largest = largest < other.largest ? other.largest : largest;
  }
  /// Whether the largest element is more than 2^octaves times the geometric mean.
  [[nodiscard]] bool spread(std::int64_t octaves) const noexcept {
    return largest * count - sum > octaves * count;
  }
};

#define LOOM_EXPONENTS(T) Exponents exponents_of(const T* data, std::int64_t count) noexcept;
LOOM_SIMD_DECLARE(LOOM_EXPONENTS(float) LOOM_EXPONENTS(simd::BFloat16))
#undef LOOM_EXPONENTS

/// Of `count` elements that lie together. T: float, simd::BFloat16.
template <class T>
inline constexpr simd::Versions<Exponents(const T* data, std::int64_t count) noexcept> exponents_of{
    LOOM_SIMD_LIST(exponents_of)};

}  // namespace loom::kernels::conv
