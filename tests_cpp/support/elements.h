// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows of float and bfloat16 for tests of kernels, and how far results are from what they should
// be. Thread: any.

#include "loom/simd/half.h"

#include "support/numbers.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace loom::testing {

/// Numbers in [-size, size), as elements.
template <class T>
std::vector<T> elements(std::int64_t count, std::uint32_t seed, float size = 1) {
  const auto values = numbers(count, seed);
  std::vector<T> made(values.size());
  for (std::size_t i = 0; i < made.size(); ++i) simd::round_to(made[i], values[i] * size);
  return made;
}

/// An element as a double.
template <class T>
double exact(T element) {
  return static_cast<double>(simd::widen(element));
}

/// The distance in units in the last place of `expected` as a T; 0 if both are the same infinity or
/// not a number.
template <class T>
double ulps(T value, double expected) {
  const double actual = exact(value);
  if (actual == expected || (std::isnan(actual) && std::isnan(expected))) return 0;
  constexpr int kDigits = sizeof(T) == 2 ? 8 : 24;
  constexpr int kLeast = std::numeric_limits<float>::min_exponent;
  int exponent = 0;
  std::frexp(expected, &exponent);
  return std::abs(actual - expected) / std::ldexp(1.0, std::max(exponent, kLeast) - kDigits);
}

/// How far rounding to a T of 16 bits may be from a number; 0 for a float, whose roundings count
/// with those of the sums.
template <class T>
double rounding_of(double expected) {
  constexpr double kHalfUlp = std::is_same_v<T, float>        ? 0
                              : std::is_same_v<T, simd::Half> ? 0x1p-11
                                                              : 0x1p-8;
  return std::abs(expected) * kHalfUlp;
}

/// What rows may be long: parts of vectors, whole ones, and several.
inline constexpr std::int64_t kRowLengths[] = {1, 3, 8, 16, 17, 31, 64, 65, 127, 1000};

}  // namespace loom::testing
