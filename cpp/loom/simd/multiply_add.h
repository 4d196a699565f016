// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// a * b + c, rounded once where the processor has an instruction for that. Of two products whose
// sum may be contracted the compiler chooses which one is not rounded, by what stands around them;
// this says which. To be included as floats.h is. Thread: any.

#include "loom/simd/floats.h"

#include <cstdint>

namespace loom::simd::LOOM_SIMD {

[[gnu::always_inline]] inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
[[gnu::always_inline]] inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return bits_of<Floats>(
      _mm512_fmadd_ps(bits_of<__m512>(a), bits_of<__m512>(b), bits_of<__m512>(c)));
#elif defined(__FMA__)
  return bits_of<Floats>(
      _mm256_fmadd_ps(bits_of<__m256>(a), bits_of<__m256>(b), bits_of<__m256>(c)));
#else
  for (std::int64_t i = 0; i < kLanes; ++i) c[i] = multiply_add(a[i], b[i], c[i]);
  return c;
#endif
}

}  // namespace loom::simd::LOOM_SIMD
