// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// vector_function() for one number.

#include "loom/fusion/vector_math.h"

#include "support/scalar_kernel.h"
#include <immintrin.h>

namespace loom::fusion::testing {
namespace detail {

// A function of one operand does not see the other.
[[gnu::target("avx512f")]] inline float call_avx512(VectorFunction function, float a, float b) {
  const auto call = reinterpret_cast<__m512 (*)(__m512, __m512)>(function);
  return _mm512_cvtss_f32(call(_mm512_set1_ps(a), _mm512_set1_ps(b)));
}
[[gnu::target("avx512f")]] inline double call_avx512(VectorFunction function, double a, double b) {
  const auto call = reinterpret_cast<__m512d (*)(__m512d, __m512d)>(function);
  return _mm512_cvtsd_f64(call(_mm512_set1_pd(a), _mm512_set1_pd(b)));
}
[[gnu::target("avx2")]] inline float call_avx2(VectorFunction function, float a, float b) {
  const auto call = reinterpret_cast<__m256 (*)(__m256, __m256)>(function);
  return _mm256_cvtss_f32(call(_mm256_set1_ps(a), _mm256_set1_ps(b)));
}
[[gnu::target("avx2")]] inline double call_avx2(VectorFunction function, double a, double b) {
  const auto call = reinterpret_cast<__m256d (*)(__m256d, __m256d)>(function);
  return _mm256_cvtsd_f64(call(_mm256_set1_pd(a), _mm256_set1_pd(b)));
}

template <class T>
T call(VectorFunction function, T a, T b) {
  return simd_level() == SimdLevel::kAvx512 ? call_avx512(function, a, b)
                                            : call_avx2(function, a, b);
}

}  // namespace detail

/// Requires: vector_function() has one.
inline Scalar call_vector_function(const Instruction& instruction, Scalar a, Scalar b) {
  const VectorFunction function = vector_function(instruction.op, instruction.type);
  if (instruction.type == Type::kFloat) {
    return {.float32 = detail::call(function, a.float32, b.float32)};
  }
  return {.float64 = detail::call(function, a.float64, b.float64)};
}

}  // namespace loom::fusion::testing
