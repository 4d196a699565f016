// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/resample_rows.h"

#include "loom/kernels/norm/largest.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <algorithm>
#include <cstdint>
#include <vector>

namespace loom::kernels {
namespace {

// Two products and a sum: half a unit in the last place each.
constexpr double kAllowed = 3 * 0x1p-23;

using testing::numbers;

std::vector<std::int32_t> places(std::int64_t count, std::uint32_t among) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(i) * 7919U % among);
  }
  return values;
}

class ResampleRowsTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(ResampleRowsTest);

TEST_P(ResampleRowsTest, ElementsAreTakenAndMixed) {
  const auto from = numbers(50, 1);
  for (const std::int64_t count : {1, 7, 16, 101}) {
    const auto first = places(count, 50), second = places(count, 49);
    const auto one = numbers(count, 2), two = numbers(count, 3);
    std::vector<float> taken(first.size()), mixed(first.size());
    pool_resample::take_elements.of(GetParam())(first.data(), from.data(), count, taken.data());
    pool_resample::mix_elements.of(GetParam())(
        {first.data(), one.data()}, {second.data(), two.data()}, from.data(), count, mixed.data());
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(taken[i], from[first[i]]);
      EXPECT_NEAR(mixed[i], double{from[first[i]]} * one[i] + double{from[second[i]]} * two[i],
                  kAllowed);
    }
  }
}

TEST_P(ResampleRowsTest, RowsAreMixedAndAdded) {
  for (const std::int64_t count : {1, 16, 77}) {
    const auto a = numbers(count, 4), b = numbers(count, 5);
    std::vector<float> to(a.size());
    pool_resample::mix_rows.of(GetParam())(a.data(), 0.3F, b.data(), -0.7F, count, to.data());
    std::vector<float> sums = to;
    pool_resample::add_row.of(GetParam())(a.data(), 0.9F, count, sums.data());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(to[i], double{a[i]} * 0.3F - double{b[i]} * 0.7F, kAllowed);
      EXPECT_NEAR(sums[i], to[i] + double{a[i]} * 0.9F, kAllowed);
    }
  }
}

TEST_P(ResampleRowsTest, SharesAreSummedUp) {
  constexpr std::int64_t kCount = 37, kMost = 3;
  const auto from = numbers(60, 6), weight = numbers(kMost * kCount, 7);
  const auto place = places(kMost * kCount, 60);
  std::vector<float> to(kCount);
  pool_resample::sum_shares.of(GetParam())({place.data(), weight.data()}, kMost, from.data(),
                                           kCount, to.data());
  for (std::size_t i = 0; i < kCount; ++i) {
    double sum = 0;
    for (std::size_t s = 0; s < kMost; ++s) {
      sum += double{from[place[s * kCount + i]]} * weight[s * kCount + i];
    }
    EXPECT_NEAR(to[i], sum, kAllowed);
  }
}

TEST_P(ResampleRowsTest, TheLargest) {
  for (const std::int64_t count : {1, 31, 32, 33, 1000}) {
    for (std::uint32_t seed = 1; seed < 20; ++seed) {
      const auto values = numbers(count, seed);
      const std::vector<double> wide(values.begin(), values.end());
      EXPECT_EQ(norm::largest<float>.of(GetParam())(values.data(), count),
                *std::max_element(values.begin(), values.end()));
      EXPECT_EQ(norm::largest<double>.of(GetParam())(wide.data(), count),
                *std::max_element(wide.begin(), wide.end()));
    }
  }
}

}  // namespace
}  // namespace loom::kernels
