// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/rng/loops.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::rng {
namespace {

constexpr int kCount = 1003;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Numbers of many sizes, and what is none.
std::vector<float> numbers() {
  std::vector<float> values{0.0F, -0.0F, kInfinity, -kInfinity, kNan, 1e-40F, 65519.0F, 65520.0F};
  float value = 1.1F;
  while (values.size() < kCount) {
    value = std::abs(value) > 1e30F ? 1e-38F : value * -1.7F;
    values.push_back(value);
  }
  return values;
}

std::vector<std::uint8_t> every_third() {
  std::vector<std::uint8_t> kept(kCount);
  for (int i = 0; i < kCount; ++i) kept[i] = i % 3 == 0 ? 1 : 0;
  return kept;
}

class RngLoopsTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_rounded() {
    const auto from = numbers();
    std::vector<T> to(kCount);
    round_all<T>.of(GetParam())(from.data(), to.data(), kCount);
    for (int i = 0; i < kCount; ++i) {
      T expected{};
      simd::round_to(expected, from[i]);
      ASSERT_EQ(to[i].bits, expected.bits) << from[i];
    }
  }

  template <class T, class Bits>
  void expect_scaled() {
    const auto values = numbers();
    const auto kept = every_third();
    std::vector<T> from(kCount), to(kCount);
    using Real = typename Computed<T>::Type;
    for (int i = 0; i < kCount; ++i) simd::round_to(from[i], static_cast<Real>(values[i]));
    scale_kept<T>.of(GetParam())(from.data(), kept.data(), to.data(), kCount, Real(1.25));
    for (int i = 0; i < kCount; ++i) {
      T expected{};
      simd::round_to(expected, simd::widen(from[i]) * kept[i] * Real(1.25));
      if (simd::widen(expected) == simd::widen(expected)) {
        ASSERT_EQ(std::bit_cast<Bits>(to[i]), std::bit_cast<Bits>(expected)) << values[i];
      } else {
        ASSERT_NE(simd::widen(to[i]), simd::widen(to[i])) << values[i];
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(RngLoopsTest);

TEST_P(RngLoopsTest, RoundToTheNearest) {
  expect_rounded<simd::Half>();
  expect_rounded<simd::BFloat16>();
}

TEST_P(RngLoopsTest, WhatIsNotKeptIsTimesZero) {
  expect_scaled<float, std::uint32_t>();
  expect_scaled<double, std::uint64_t>();
  expect_scaled<simd::Half, std::uint16_t>();
  expect_scaled<simd::BFloat16, std::uint16_t>();
}

TEST_P(RngLoopsTest, WordsBelowTheProbabilityAreKept) {
  std::vector<std::uint32_t> words(kCount);
  std::vector<double> p(kCount);
  for (int i = 0; i < kCount; ++i) {
    words[i] = static_cast<std::uint32_t>(i) * 0x9E3779B9U;
    p[i] = i % 11 / 10.0;
  }
  std::vector<std::uint8_t> kept(kCount);
  EXPECT_TRUE(compare.of(GetParam())(words.data(), p.data(), kept.data(), kCount));
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(kept[i], words[i] * 0x1p-32 < p[i] ? 1 : 0);
  for (const double wrong : {-0.1, 1.1, static_cast<double>(kNan)}) {
    p[kCount - 2] = wrong;
    EXPECT_FALSE(compare.of(GetParam())(words.data(), p.data(), kept.data(), kCount));
  }
}

}  // namespace
}  // namespace loom::kernels::rng
