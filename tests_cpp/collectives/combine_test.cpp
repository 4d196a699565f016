// SPDX-License-Identifier: BSD-3-Clause
// What ranks have is combined in the order of ranks, in the type that the header says.
#include "loom/collectives/combine.h"

#include "loom/simd/half.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::collectives {
namespace {

class CombineTest : public loom::testing::SimdTest {
 protected:
  template <class T>
  std::vector<T> combined(const std::vector<std::vector<T>>& ranks, const Combination& how) {
    std::vector<T> to(ranks[0].size() + 1, T{});
    std::vector<const void*> sources;
    for (const auto& rank : ranks) sources.push_back(rank.data());
    combine.of(GetParam())(to.data(), sources.data(), static_cast<int>(sources.size()),
                           static_cast<std::int64_t>(ranks[0].size()), how);
    to.pop_back();
    return to;
  }
};
LOOM_TEST_SIMD_LEVELS(CombineTest);

TEST_P(CombineTest, SumsAreTakenInTheOrderOfRanks) {
  // 2^24 + 1 + 1 is 2^24 in that order, and 1 + 1 + 2^24 is not.
  constexpr float kLarge = 1 << 24;
  const std::vector<std::vector<float>> ranks{{kLarge, 1, 1}, {1, 1, kLarge}, {1, kLarge, 1}};
  EXPECT_EQ(combined(ranks, {}), (std::vector<float>{kLarge, kLarge + 2, kLarge}));
}

TEST_P(CombineTest, HalfTypesAreRoundedOnce) {
  // 256 + 1 is no bfloat16, 256 + 1 + 1 is.
  const auto bfloat16 = [](float value) {
    simd::BFloat16 to{};
    simd::round_to(to, value);
    return to;
  };
  const std::vector<std::vector<simd::BFloat16>> ranks{
      {bfloat16(256)}, {bfloat16(1)}, {bfloat16(1)}};
  EXPECT_EQ(simd::widen(combined(ranks, {Element::kBFloat16})[0]), 258);
  const auto half = [](float value) {
    simd::Half to{};
    simd::round_to(to, value);
    return to;
  };
  const std::vector<std::vector<simd::Half>> halves{{half(2048)}, {half(1)}, {half(1)}};
  EXPECT_EQ(simd::widen(combined(halves, {Element::kFloat16})[0]), 2050);
}

TEST_P(CombineTest, NaNsStay) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    const std::vector<std::vector<float>> ranks{{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}};
    for (const float value : combined(ranks, {Element::kFloat32, reduction})) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST_P(CombineTest, IntegersWrapAround) {
  const std::vector<std::vector<std::int8_t>> bytes{{127, -128, 16}, {1, -1, 16}};
  EXPECT_EQ(combined(bytes, {Element::kInt8}), (std::vector<std::int8_t>{-128, 127, 32}));
  EXPECT_EQ(combined(bytes, {Element::kInt8, Reduction::kProduct}),
            (std::vector<std::int8_t>{127, -128, 0}));
  const std::vector<std::vector<std::int64_t>> longs{{INT64_MAX}, {2}};
  EXPECT_EQ(combined(longs, {Element::kInt64})[0], INT64_MIN + 1);
}

TEST_P(CombineTest, EachReductionOfIntegers) {
  const std::vector<std::vector<std::int32_t>> ranks{{12, -7}, {10, 4}, {3, -2}};
  const auto of = [&](Reduction reduction) {
    return combined(ranks, {Element::kInt32, reduction, 3});
  };
  using Values = std::vector<std::int32_t>;
  EXPECT_EQ(of(Reduction::kSum), (Values{25, -5}));
  EXPECT_EQ(of(Reduction::kProduct), (Values{360, 56}));
  EXPECT_EQ(of(Reduction::kMin), (Values{3, -7}));
  EXPECT_EQ(of(Reduction::kMax), (Values{12, 4}));
  EXPECT_EQ(of(Reduction::kAnd), (Values{12 & 10 & 3, -7 & 4 & -2}));
  EXPECT_EQ(of(Reduction::kOr), (Values{12 | 10 | 3, -7 | 4 | -2}));
  EXPECT_EQ(of(Reduction::kXor), (Values{12 ^ 10 ^ 3, -7 ^ 4 ^ -2}));
  EXPECT_EQ(of(Reduction::kAverage), (Values{8, -1}));
  EXPECT_EQ(of(Reduction::kScaledSum), (Values{75, -15}));
}

TEST_P(CombineTest, AveragesOfBytesOverManyRanks) {
  const std::vector<std::vector<std::int8_t>> ranks(256, std::vector<std::int8_t>(3, -1));
  EXPECT_EQ(combined(ranks, {Element::kInt8, Reduction::kAverage}),
            (std::vector<std::int8_t>{0, 0, 0}));
}

TEST_P(CombineTest, LongRowsInPlace) {
  constexpr std::size_t kCount = 5000;
  std::vector<double> first(kCount), second(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    first[i] = static_cast<double>(i) / 3;
    second[i] = 1 / (1 + static_cast<double>(i));
  }
  std::vector<double> expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) expected[i] = (first[i] + second[i]) / 2;
  const void* const sources[] = {first.data(), second.data()};
  combine.of(GetParam())(second.data(), sources, 2, kCount,
                         {Element::kFloat64, Reduction::kAverage});
  EXPECT_EQ(second, expected);
}

}  // namespace
}  // namespace loom::collectives
