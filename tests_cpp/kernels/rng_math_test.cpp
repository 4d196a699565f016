// SPDX-License-Identifier: BSD-3-Clause
// The error bounds of loom/kernels/rng/math.h, against long double.
#include "loom/kernels/rng/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace loom::kernels::rng {
namespace {

constexpr int kPoints = 200'000;

// Distance in units of the last place of a T near `expected`.
template <class T>
double ulps(T got, long double expected) {
  int exponent = 0;
  std::frexp(expected, &exponent);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - expected) / unit);
}

// The largest error of `got` against `expected` over points spread evenly over [low, high].
template <class T, class Got, class Expected>
double largest_error(long double low, long double high, Got got, Expected expected) {
  double largest = 0;
  for (int i = 0; i < kPoints; ++i) {
    const T x = static_cast<T>(low + (high - low) * (i + 0.5L) / kPoints);
    largest = std::max(largest, ulps<T>(got(x), expected(static_cast<long double>(x))));
  }
  return largest;
}

template <class T>
class RandomMathTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RandomMathTest, Types);

constexpr long double kQuarterPi = std::numbers::pi_v<long double> / 4;

TYPED_TEST(RandomMathTest, LogIsExactToOneUnit) {
  using T = TypeParam;
  const auto got = [](T x) { return math::log(x); };
  const auto expected = [](long double x) { return std::log(x); };
  EXPECT_LT((largest_error<T>(0x1p-40L, 0x1p-30L, got, expected)), 1);
  EXPECT_LT((largest_error<T>(0.001L, 0.999L, got, expected)), 1);
  EXPECT_LT((largest_error<T>(1 - 0x1p-20L, 1 - 0x1p-23L, got, expected)), 1);
  EXPECT_EQ(math::log(T{1}), 0);
}

TYPED_TEST(RandomMathTest, SineAndCosineAreExactToTwoUnits) {
  using T = TypeParam;
  EXPECT_LT((largest_error<T>(
                -kQuarterPi, kQuarterPi, [](T x) { return math::sin_cos_quarter(x).sin; },
                [](long double x) { return std::sin(x); })),
            2);
  EXPECT_LT((largest_error<T>(
                -kQuarterPi, kQuarterPi, [](T x) { return math::sin_cos_quarter(x).cos; },
                [](long double x) { return std::cos(x); })),
            2);
}

TYPED_TEST(RandomMathTest, QuarterTurnsRotate) {
  using T = TypeParam;
  for (const double x : {-0.7, -0.1, 0.3, 0.78}) {
    for (std::uint32_t quarter = 0; quarter < 4; ++quarter) {
      const auto point = math::sin_cos(static_cast<T>(x), quarter);
      const double angle = x + quarter * std::numbers::pi / 2;
      EXPECT_NEAR(point.sin, std::sin(angle), 2 * 0x1p-23) << x << " " << quarter;
      EXPECT_NEAR(point.cos, std::cos(angle), 2 * 0x1p-23) << x << " " << quarter;
    }
  }
}

TYPED_TEST(RandomMathTest, ExpIsExactToTwoUnits) {
  using T = TypeParam;
  const long double limit = sizeof(T) == sizeof(float) ? 85 : 700;
  EXPECT_LT((largest_error<T>(
                -limit, limit, [](T x) { return math::exp(x); },
                [](long double x) { return std::exp(x); })),
            2);
}

TYPED_TEST(RandomMathTest, ExpLeavesTheRangeAsItShould) {
  using T = TypeParam;
  EXPECT_EQ(math::exp(T{-10000}), 0);
  EXPECT_EQ(math::exp(T{10000}), std::numeric_limits<T>::infinity());
  EXPECT_EQ(math::exp(-std::numeric_limits<T>::infinity()), 0);
  EXPECT_TRUE(std::isnan(math::exp(std::numeric_limits<T>::quiet_NaN())));
}

}  // namespace
}  // namespace loom::kernels::rng
