// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The operations of vector_formulas.h on registers. Included by files compiled for one instruction
// set, after its simd_*.h.

#include "loom/fusion/cdf_table.h"
#include "loom/fusion/erf_table.h"

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

#define LOOM_INLINE [[gnu::always_inline]] static inline

#if defined(LOOM_SIMD_AVX512)

struct SimdMath {
  using Vector = __m512;
  using Mask = __mmask16;
  LOOM_INLINE Vector number(float value) { return _mm512_set1_ps(value); }
  LOOM_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  LOOM_INLINE Vector sub(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  LOOM_INLINE Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  LOOM_INLINE Vector div(Vector a, Vector b) { return _mm512_div_ps(a, b); }
  LOOM_INLINE Vector mul_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  LOOM_INLINE Vector round(Vector a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  LOOM_INLINE Vector sqrt(Vector a) { return _mm512_sqrt_ps(a); }
  LOOM_INLINE Vector neg(Vector a) { return _mm512_xor_ps(a, number(-0.0F)); }
  LOOM_INLINE Vector abs(Vector a) { return _mm512_andnot_ps(number(-0.0F), a); }
  LOOM_INLINE Vector copysign(Vector a, Vector b) {
    return _mm512_or_ps(abs(a), _mm512_and_ps(number(-0.0F), b));
  }
  LOOM_INLINE Vector least(Vector a, Vector b) { return _mm512_min_ps(a, b); }
  LOOM_INLINE Vector greatest(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  LOOM_INLINE Vector fmax(Vector a, Vector b) {
    return select(_mm512_cmp_ps_mask(b, b, _CMP_UNORD_Q), a, greatest(a, b));
  }
  LOOM_INLINE Vector scale(Vector a, Vector n) { return _mm512_scalef_ps(a, n); }
  LOOM_INLINE Vector exponent(Vector a) { return _mm512_getexp_ps(a); }
  LOOM_INLINE Vector fraction(Vector a) {
    return _mm512_getmant_ps(a, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
  }
  LOOM_INLINE Vector erf_term(Vector which, int i) {
    return _mm512_permutexvar_ps(_mm512_castps_si512(which), _mm512_load_ps(kErfTable.terms[i]));
  }
  LOOM_INLINE Vector cdf_term(Vector which, int i) {
    const float* row = kCdfTable.terms[i];
    return _mm512_permutex2var_ps(_mm512_load_ps(row), _mm512_castps_si512(which),
                                  _mm512_load_ps(row + 16));
  }
  LOOM_INLINE Mask lt(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  LOOM_INLINE Vector select(Mask mask, Vector a, Vector b) {
    return _mm512_mask_blend_ps(mask, b, a);
  }
};

#else

struct SimdMath {
  using Vector = __m256;
  using Mask = __m256;
  LOOM_INLINE Vector number(float value) { return _mm256_set1_ps(value); }
  LOOM_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  LOOM_INLINE Vector sub(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  LOOM_INLINE Vector mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  LOOM_INLINE Vector div(Vector a, Vector b) { return _mm256_div_ps(a, b); }
  LOOM_INLINE Vector mul_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  LOOM_INLINE Vector round(Vector a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  LOOM_INLINE Vector sqrt(Vector a) { return _mm256_sqrt_ps(a); }
  LOOM_INLINE Vector neg(Vector a) { return _mm256_xor_ps(a, number(-0.0F)); }
  LOOM_INLINE Vector abs(Vector a) { return _mm256_andnot_ps(number(-0.0F), a); }
  LOOM_INLINE Vector copysign(Vector a, Vector b) {
    return _mm256_or_ps(abs(a), _mm256_and_ps(number(-0.0F), b));
  }
  LOOM_INLINE Vector least(Vector a, Vector b) { return _mm256_min_ps(a, b); }
  LOOM_INLINE Vector greatest(Vector a, Vector b) { return _mm256_max_ps(a, b); }

  LOOM_INLINE Vector fmax(Vector a, Vector b) {
    return select(_mm256_cmp_ps(b, b, _CMP_UNORD_Q), a, greatest(a, b));
  }

  /// 2^n for whole n from -126 to 127.
  LOOM_INLINE Vector power(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  // In two steps, of which the first one is exact, since 2^n itself may be out of range.
  LOOM_INLINE Vector scale(Vector a, Vector n) {
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return mul(mul(a, power(half)), power(_mm256_sub_epi32(whole, half)));
  }

  LOOM_INLINE Mask lt(Vector a, Vector b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  LOOM_INLINE Vector select(Mask mask, Vector a, Vector b) { return _mm256_blendv_ps(b, a, mask); }

  LOOM_INLINE Mask is_denormal(Vector size) { return lt(size, number(0x1p-126F)); }
  LOOM_INLINE __m256i normal_bits(Vector size) {
    return _mm256_castps_si256(select(is_denormal(size), mul(size, number(0x1p24F)), size));
  }
  LOOM_INLINE Vector exponent(Vector a) {
    const Vector size = abs(a);
    const __m256i biased = _mm256_srli_epi32(normal_bits(size), 23);
    const Vector bias = select(is_denormal(size), number(127.0F + 24.0F), number(127.0F));
    const Vector finite = sub(_mm256_cvtepi32_ps(biased), bias);
    const Vector infinity = number(__builtin_inff());
    const Vector positive = select(lt(size, infinity), finite, size);  // a NaN, too
    return select(_mm256_cmp_ps(size, number(0.0F), _CMP_EQ_OQ), neg(infinity), positive);
  }
  LOOM_INLINE Vector fraction(Vector a) {
    const __m256i digits = _mm256_and_si256(normal_bits(abs(a)), _mm256_set1_epi32(0x007FFFFF));
    const Vector value =
        _mm256_castsi256_ps(_mm256_or_si256(digits, _mm256_set1_epi32(0x3F800000)));
    const Vector near = select(lt(value, number(1.5F)), value, mul(value, number(0.5F)));
    const Mask defined = _mm256_cmp_ps(a, number(0.0F), _CMP_GE_OQ);
    return select(defined, near, number(__builtin_nanf("")));
  }

  /// Of 16 numbers those that the lowest 4 bits choose.
  LOOM_INLINE Vector choose(const float* numbers, Vector which) {
    const __m256i index = _mm256_castps_si256(which);
    const Vector low = _mm256_permutevar8x32_ps(_mm256_load_ps(numbers), index);
    const Vector high = _mm256_permutevar8x32_ps(_mm256_load_ps(numbers + 8), index);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  }
  LOOM_INLINE Vector erf_term(Vector which, int i) { return choose(kErfTable.terms[i], which); }
  /// Of 32.
  LOOM_INLINE Vector cdf_term(Vector which, int i) {
    const float* row = kCdfTable.terms[i];
    const __m256i fifth_bit = _mm256_slli_epi32(_mm256_castps_si256(which), 27);
    return _mm256_blendv_ps(choose(row, which), choose(row + 16, which),
                            _mm256_castsi256_ps(fifth_bit));
  }
};

#endif
#undef LOOM_INLINE

}  // namespace
}  // namespace loom::fusion
