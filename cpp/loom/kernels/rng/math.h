// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// log, exp, sine and cosine for float and double, written so that a compiler turns loops over them
// into vector code: no branches, no tables, no calls. Their series are cut where the rest is below
// half a unit in the last place; errors stay below 2 units (tests_cpp/kernels/rng_math_test.cpp).
// Built without contraction of a*b+c, so that all processors give the same bits.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#define LOOM_RNG_INLINE [[gnu::always_inline]] inline

namespace loom::kernels::rng::math {

template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr unsigned kMantissaBits = 23;
  static constexpr Bits kBias = 127;
  static constexpr Bits kRootHalf = 0x3F3504F3;      // sqrt(1/2)
  static constexpr float kTwoToMantissa = 0x1p23F;   // its unit in the last place is 1
  static constexpr float kLn2High = 0x1.62e4p-1F;    // few bits: multiples are exact
  static constexpr float kLn2Low = 0x1.7f7d1cp-20F;  // the rest of ln 2
  static constexpr int kLogTerms = 5, kSinTerms = 4, kCosTerms = 5, kExpTerms = 8;
  static constexpr float kExpLimit = 110;
};

template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr unsigned kMantissaBits = 52;
  static constexpr Bits kBias = 1023;
  static constexpr Bits kRootHalf = 0x3FE6A09E667F3BCD;
  static constexpr double kTwoToMantissa = 0x1p52;
  static constexpr double kLn2High = 0x1.62e42fefa0000p-1;
  static constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  static constexpr int kLogTerms = 11, kSinTerms = 8, kCosTerms = 9, kExpTerms = 15;
  static constexpr double kExpLimit = 800;
};

/// The integer in [0, 2^mantissa bits) as a floating-point number.
template <class T>
LOOM_RNG_INLINE T to_real(typename Format<T>::Bits integer) {
  using F = Format<T>;
  constexpr auto kExponent = std::bit_cast<typename F::Bits>(F::kTwoToMantissa);
  return std::bit_cast<T>(integer | kExponent) - F::kTwoToMantissa;
}

/// ln x. Requires: x positive, finite and not subnormal.
template <class T>
LOOM_RNG_INLINE T log(T x) {
  using F = Format<T>;
  using Bits = F::Bits;
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  constexpr Bits kOne = F::kBias << F::kMantissaBits;
  const Bits shifted = std::bit_cast<Bits>(x) + (kOne - F::kRootHalf);
  const Bits biased = shifted >> F::kMantissaBits;
  const T e = to_real<T>(biased) - static_cast<T>(F::kBias);
  const T m = std::bit_cast<T>(std::bit_cast<Bits>(x) - ((biased - F::kBias) << F::kMantissaBits));
  // With f = m - 1 and s = f / (2 + f): ln m = 2 atanh(s) = 2s + s R(s^2), and 2s = f - s f.
  const T f = m - 1;
  const T s = f / (2 + f);
  const T z = s * s;
  T rest = 0;
#pragma GCC unroll 16
  for (int k = F::kLogTerms; k >= 1; --k) rest = z * (rest + T{2} / static_cast<T>(2 * k + 1));
  const T half_square = f * f / 2;
  // s f = f^2/2 - s f^2/2 keeps the large terms exact.
  return e * F::kLn2High - ((half_square - (s * (half_square + rest) + e * F::kLn2Low)) - f);
}

template <class T>
struct SinCos {
  T sin, cos;
};

/// Coefficients of x^(step k + first), k < kTerms, of a series in 1 / n!.
template <class T, int kTerms, int kFirst, int kStep, bool kAlternate>
inline constexpr auto kTaylor = [] {
  std::array<T, kTerms> coefficients{};
  for (int k = 0; k < kTerms; ++k) {
    double factorial = 1;
    for (int n = 2; n <= kStep * k + kFirst; ++n) factorial *= n;
    coefficients[k] = static_cast<T>((kAlternate && k % 2 == 1 ? -1 : 1) / factorial);
  }
  return coefficients;
}();

template <class T, std::size_t kTerms>
LOOM_RNG_INLINE T polynomial(const std::array<T, kTerms>& coefficients, T x) {
  T sum = coefficients[kTerms - 1];
#pragma GCC unroll 16
  for (int k = static_cast<int>(kTerms) - 2; k >= 0; --k) sum = sum * x + coefficients[k];
  return sum;
}

/// Of |x| <= pi / 4.
template <class T>
LOOM_RNG_INLINE SinCos<T> sin_cos_quarter(T x) {
  const T z = x * x;
  return {x - x * (z * polynomial(kTaylor<T, Format<T>::kSinTerms, 3, 2, true>, z)),
          1 - z * polynomial(kTaylor<T, Format<T>::kCosTerms, 2, 2, true>, z)};
}

/// Of x plus `quarters` quarter turns, |x| <= pi / 4.
template <class T>
LOOM_RNG_INLINE SinCos<T> sin_cos(T x, typename Format<T>::Bits quarters) {
  using Bits = Format<T>::Bits;
  constexpr unsigned kToSign = 8 * sizeof(T) - 2;  // from bit 1 to the sign bit
  const auto [sin, cos] = sin_cos_quarter(x);
  const bool swapped = (quarters & 1) != 0;
  const Bits sin_bits = std::bit_cast<Bits>(swapped ? cos : sin);
  const Bits cos_bits = std::bit_cast<Bits>(swapped ? sin : cos);
  return {std::bit_cast<T>(sin_bits ^ ((quarters & 2) << kToSign)),
          std::bit_cast<T>(cos_bits ^ (((quarters + 1) & 2) << kToSign))};
}

/// The nearest integer, ties to even. Requires: |x| below a quarter of 2^mantissa bits.
template <class T>
LOOM_RNG_INLINE T nearest(T x) {
  constexpr T kMagic = Format<T>::kTwoToMantissa * T{1.5};
  return (x + kMagic) - kMagic;
}

/// 2^k. Requires: k an integer whose power is a normal number.
template <class T>
LOOM_RNG_INLINE T power_of_two(T k) {
  using F = Format<T>;
  // Adding 1.5 * 2^mantissa leaves k + bias in the lowest bits; the shift drops the others.
  const T shifted = k + (F::kTwoToMantissa * T{1.5} + static_cast<T>(F::kBias));
  return std::bit_cast<T>(std::bit_cast<typename F::Bits>(shifted) << F::kMantissaBits);
}

/// e^x, 0 and infinity where it leaves the range; NaN gives NaN.
template <class T>
LOOM_RNG_INLINE T exp(T x) {
  using F = Format<T>;
  constexpr T kLog2E = static_cast<T>(1.4426950408889634);
  x = x > F::kExpLimit ? F::kExpLimit : x;
  x = x < -F::kExpLimit ? -F::kExpLimit : x;
  const T k = nearest(x * kLog2E);
  const T r = (x - k * F::kLn2High) - k * F::kLn2Low;
  // Two factors, since 2^k itself may be beyond the normal numbers.
  const T half = nearest(k / 2);
  return polynomial(kTaylor<T, F::kExpTerms, 0, 1, false>, r) * power_of_two(half) *
         power_of_two(k - half);
}

}  // namespace loom::kernels::rng::math
