// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Some lanes in the middle of a vector, whose others are 0 and not read: memory there may be
// nobody's. To be included as floats.h is. Thread: any.

#include "loom/simd/floats.h"

#include <cstdint>

namespace loom::simd::LOOM_SIMD {

#if defined(__AVX512F__)
using Lanes = __mmask16;
[[gnu::always_inline]] inline Lanes lanes_from_first(std::int64_t count) {
  const auto bits = static_cast<unsigned>(count < 0 ? 0 : count > kLanes ? kLanes : count);
  return static_cast<Lanes>((1U << bits) - 1);
}
/// The lanes [first, end), of which there may be none; both may be beyond the vector.
[[gnu::always_inline]] inline Lanes lanes_between(std::int64_t first, std::int64_t end) {
  return static_cast<Lanes>(lanes_from_first(end) & ~lanes_from_first(first));
}
[[gnu::always_inline]] inline Floats load_lanes(const float* from, Lanes lanes) {
  return bits_of<Floats>(_mm512_maskz_loadu_ps(lanes, from));
}
#elif defined(__AVX2__)
using Lanes = __m256i;
[[gnu::always_inline]] inline Lanes lanes_between(std::int64_t first, std::int64_t end) {
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const auto from = [&](std::int64_t count) {
    const auto least = static_cast<int>(count < 0 ? 0 : count > kLanes ? kLanes : count);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(least), places);
  };
  return _mm256_andnot_si256(from(first), from(end));
}
[[gnu::always_inline]] inline Floats load_lanes(const float* from, Lanes lanes) {
  return bits_of<Floats>(_mm256_maskload_ps(from, lanes));
}
#else
struct Lanes {
  std::int64_t first, end;
};
[[gnu::always_inline]] inline Lanes lanes_between(std::int64_t first, std::int64_t end) {
  return {first < 0 ? 0 : first, end > kLanes ? kLanes : end};
}
[[gnu::always_inline]] inline Floats load_lanes(const float* from, Lanes lanes) {
  Floats value{};
  for (std::int64_t i = lanes.first; i < lanes.end; ++i) value[i] = from[i];
  return value;
}
#endif

}  // namespace loom::simd::LOOM_SIMD
