// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the SIMD files need to know of AVX2. Included by files compiled for it, only.

#include <immintrin.h>

// Names of Sleef's functions for these vectors.
#define LOOM_SLEEF_FLOAT(name, suffix) Sleef_##name##f8##suffix
#define LOOM_SLEEF_DOUBLE(name, suffix) Sleef_##name##d4##suffix

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

using FloatVector = __m256;
using DoubleVector = __m256d;
using IntVector = __m256i;
inline constexpr int kVectorBytes = 32;

/// Whether a bit is set in any lane.
[[gnu::always_inline]] inline bool any(IntVector lanes) {
  return _mm256_testz_si256(lanes, lanes) == 0;
}

[[gnu::always_inline]] inline FloatVector mul_add(FloatVector a, FloatVector b, FloatVector c) {
  return _mm256_fmadd_ps(a, b, c);
}

/// One vector past the caches; `out` is aligned.
[[gnu::always_inline]] inline void stream_vector(void* out, const void* in) {
  _mm256_stream_si256(static_cast<__m256i*>(out),
                      _mm256_loadu_si256(static_cast<const __m256i*>(in)));
}
/// Makes what was streamed visible before whatever is stored later.
[[gnu::always_inline]] inline void end_of_stream() { _mm_sfence(); }

}  // namespace
}  // namespace loom::fusion
