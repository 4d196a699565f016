// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How functions of float are computed, for whoever has the operations: registers of one instruction
// set (simd_avx2.h, simd_avx512.h) or an assembler (jit/expand.cpp). Both do the same operations in
// the same order, so both give the same bits.
//
// `Math` has a Vector, a Mask, number(float), and the operations of op.h by their names, with the
// parts of functions (Op::kLeast and after it). Coefficients are minimax for the relative error of
// the result (tools/vector_coefficients.py prints them). Largest errors, in units of the last
// place, over every 61st float: exp 0.88, exp2 0.94, expm1 1.61, log 1.20, log2 1.98, log1p 1.20,
// tanh 1.85, erf 1.38, hypot 1.2 (tests_cpp/fusion/vector_formulas_test.cpp); the normal
// distribution's is for bfloat16 (cdf_table.h).
// Thread: any.

#include "loom/fusion/op.h"

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

/// Formula<op>::apply(math, x) or apply(math, x, y) computes `op`, where kExists.
template <Op op>
struct Formula {
  static constexpr bool kExists = false;
};

inline constexpr float kLog2OfE = 1.44269504F;
inline constexpr float kLn2High = 0.693147182F, kLn2Low = -1.90465430e-9F;

/// c[0] + c[1] x + c[2] x^2 + ...
template <class Math, class Vector, int count>
[[gnu::always_inline]] inline Vector polynomial(Math& m, Vector x, const float (&c)[count]) {
  Vector sum = m.number(c[count - 1]);
#pragma GCC unroll 16
  for (int i = count - 2; i >= 0; --i) sum = m.mul_add(sum, x, m.number(c[i]));
  return sum;
}

/// x = n ln 2 + r with a whole n and |r| <= ln 2 / 2.
template <class Vector>
struct Reduced {
  Vector n, r;
};
template <class Math, class Vector>
[[gnu::always_inline]] inline Reduced<Vector> reduce(Math& m, Vector x) {
  const Vector n = m.round(m.mul(x, m.number(kLog2OfE)));
  const Vector high = m.mul_add(n, m.number(-kLn2High), x);
  return {n, m.mul_add(n, m.number(-kLn2Low), high)};
}

/// e^r - 1 for |r| <= ln 2 / 2.
template <class Math, class Vector>
[[gnu::always_inline]] inline Vector small_expm1(Math& m, Vector r) {
  constexpr float kTail[] = {0.5F, 0.166665435F, 0.0416662805F, 0.00836661085F, 0.00139464973F};
  return m.mul_add(m.mul(r, r), polynomial(m, r, kTail), r);
}

// Beyond the bounds the result is 0 or infinite; a NaN is neither least nor greatest, and stays.
template <>
struct Formula<Op::kExp> {
  static constexpr bool kExists = true;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    constexpr float kTerms[] = {1.0F,         1.0F,           0.49999994F,   0.166665211F,
                                0.041668389F, 0.00836874545F, 0.00138145406F};
    const Vector x = m.greatest(m.number(-104.0F), m.least(m.number(89.0F), a));
    const auto [n, r] = reduce(m, x);
    return m.scale(polynomial(m, r, kTerms), n);
  }
};

template <>
struct Formula<Op::kExp2> {
  static constexpr bool kExists = true;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    constexpr float kTerms[] = {1.0F,           0.693147182F,  0.240226477F,   0.0555033237F,
                                0.00961843692F, 0.0013398875F, 0.000153533634F};
    const Vector x = m.greatest(m.number(-151.0F), m.least(m.number(129.0F), a));
    const Vector n = m.round(x);
    return m.scale(polynomial(m, m.sub(x, n), kTerms), n);
  }
};

// 2^n (q + (1 - 2^-n)) with q = e^r - 1, which is q for n = 0.
template <>
struct Formula<Op::kExpm1> {
  static constexpr bool kExists = true;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    const Vector x = m.greatest(m.number(-18.0F), m.least(m.number(89.0F), a));
    const auto [n, r] = reduce(m, x);
    const Vector one = m.number(1.0F);
    const Vector rest = m.sub(one, m.scale(one, m.neg(n)));
    const Vector value = m.scale(m.add(small_expm1(m, r), rest), n);
    return m.copysign(value, a);
  }
};

// h / (h + 1) with h = (e^2|x| - 1) / 2; from 9.02 on it is 1. Near 0 it is h - h h / (h + 1),
// where errors of the quotient count less.
template <>
struct Formula<Op::kTanh> {
  static constexpr bool kExists = true;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    const Vector size = m.least(m.number(9.5F), m.abs(a));
    const auto [n, r] = reduce(m, m.add(size, size));
    const Vector one = m.number(1.0F);
    const Vector power = m.scale(m.number(0.5F), n);
    const Vector half = m.mul_add(power, small_expm1(m, r), m.sub(power, m.number(0.5F)));
    const Vector ratio = m.div(half, m.add(half, one));
    const Vector near = m.mul_add(m.neg(half), ratio, half);
    return m.copysign(m.select(m.lt(size, m.number(0.3F)), near, ratio), a);
  }
};

// The Taylor series, made minimax, at the multiple of 1/4 that is nearest. From 4 on it is 1: where
// 1 + erf is 0, gelu is too.
template <>
struct Formula<Op::kErf> {
  static constexpr bool kExists = true;
  static constexpr int kTerms = 6;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    // A number so large that its last bit is a quarter: what is added to it is rounded to those,
    // and its lowest bits number them.
    const Vector shift = m.number(3145728.0F);
    const Vector size = m.least(m.number(4.0F), m.abs(a));
    const Vector which = m.add(m.least(m.number(3.75F), size), shift);
    const Vector x = m.sub(size, m.sub(which, shift));
    Vector sum = m.erf_term(which, kTerms - 1);
#pragma GCC unroll 8
    for (int i = kTerms - 2; i > 0; --i) sum = m.mul_add(sum, x, m.erf_term(which, i));
    const Vector first = m.select(m.lt(m.number(0.125F), size), m.erf_term(which, 0), size);
    sum = m.mul_add(sum, x, first);
    return m.copysign(m.least(m.number(1.0F), sum), a);
  }
};

// A polynomial at the multiple of 1 / 2.8 that is nearest. Beyond the bounds it is 0 or 1.
template <>
struct Formula<Op::kNormalCdf> {
  static constexpr bool kExists = true;
  static constexpr int kTerms = 5;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    // A number so large that its last bit is 1.
    const Vector shift = m.number(12582912.0F);
    const Vector x = m.greatest(m.number(-5.7F), m.least(m.number(5.4F), a));
    const Vector which = m.mul_add(x, m.number(2.8F), shift);
    const Vector rest = m.mul_add(m.sub(which, shift), m.number(-1 / 2.8F), x);
    Vector sum = m.cdf_term(which, kTerms - 1);
#pragma GCC unroll 8
    for (int i = kTerms - 2; i >= 0; --i) sum = m.mul_add(sum, rest, m.cdf_term(which, i));
    return sum;
  }
};

/// A logarithm is e K + C log(1 + f) with K = C ln 2. The high part of K has so few bits that its
/// products are exact, and the low part is positive, so that both give the same infinity.
struct Base {
  float exponent_high, exponent_low, factor_high, factor_low;
  float tail[8];  ///< (C log(1 + f) - C f) / f^2 for f from -1/4 to 1/2
};
inline constexpr Base kNatural = {0.693145752F,
                                  1.42860677e-06F,
                                  1.0F,
                                  0.0F,
                                  {-0.500000596F, 0.333335489F, -0.249934420F, 0.199770764F,
                                   -0.168228120F, 0.149839267F, -0.120673880F, 0.0541325696F}};
inline constexpr Base kBinary = {1.0F,
                                 0.0F,
                                 1.44269502F,
                                 1.92596303e-8F,
                                 {-0.721348405F, 0.480901450F, -0.360579163F, 0.288208306F,
                                  -0.242701873F, 0.216172382F, -0.174095601F, 0.0780967847F}};
/// The logarithm of 2^e (1 + f).
template <class Math, class Vector>
[[gnu::always_inline]] inline Vector logarithm(Math& m, const Base& base, Vector e, Vector f) {
  Vector small = m.mul(m.mul(f, f), polynomial(m, f, base.tail));
  if (base.exponent_low != 0) small = m.mul_add(e, m.number(base.exponent_low), small);
  if (base.factor_low != 0) small = m.mul_add(f, m.number(base.factor_low), small);
  const Vector sum =
      base.factor_high == 1.0F ? m.add(f, small) : m.mul_add(f, m.number(base.factor_high), small);
  return base.exponent_high == 1.0F ? m.add(e, sum)
                                    : m.mul_add(e, m.number(base.exponent_high), sum);
}

// Of 0 the exponent is minus infinity, of infinity infinity; of negative numbers the fraction is a
// NaN.
template <const Base& base>
struct Logarithm {
  static constexpr bool kExists = true;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    const Vector fraction = m.fraction(a);
    const Vector e = m.sub(m.exponent(a), m.exponent(fraction));
    return logarithm(m, base, e, m.sub(fraction, m.number(1.0F)));
  }
};
template <>
struct Formula<Op::kLog> : Logarithm<kNatural> {};
template <>
struct Formula<Op::kLog2> : Logarithm<kBinary> {};

// 1 + a has lost digits of a, so the fraction is made from a: 2^-e a + (2^-e - 1).
template <>
struct Formula<Op::kLog1p> {
  static constexpr bool kExists = true;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a) {
    const Vector one = m.number(1.0F);
    const Vector sum = m.add(a, one);
    const Vector e = m.sub(m.exponent(sum), m.exponent(m.fraction(sum)));
    const Vector bounded = m.greatest(m.number(-126.0F), e);
    const Vector power = m.scale(one, m.neg(bounded));
    const Vector f = m.mul_add(a, power, m.sub(power, one));
    const Vector finite = logarithm(m, kNatural, e, f);
    const Vector value = m.select(m.lt(a, m.number(__builtin_inff())), finite, a);
    return m.copysign(value, a);
  }
};

// Squares of numbers whose larger one is made to be in [1, 2). Infinite if one is, NaN beside it or
// not.
template <>
struct Formula<Op::kHypot> {
  static constexpr bool kExists = true;

  template <class Math, class Vector>
  [[gnu::always_inline]] static Vector apply(Math& m, Vector a, Vector b) {
    const Vector x = m.abs(a), y = m.abs(b);
    const Vector larger = m.fmax(x, y);
    const Vector e = m.greatest(m.number(-126.0F), m.least(m.number(127.0F), m.exponent(larger)));
    const Vector down = m.neg(e);
    const Vector near_x = m.scale(x, down), near_y = m.scale(y, down);
    const Vector sum = m.add(m.mul(near_x, near_x), m.mul(near_y, near_y));
    const Vector value = m.scale(m.sqrt(sum), e);
    return m.select(m.lt(larger, m.number(__builtin_inff())), value, larger);
  }
};

}  // namespace
}  // namespace loom::fusion
