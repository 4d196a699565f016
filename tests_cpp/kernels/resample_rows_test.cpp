// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/resample_rows.h"

#include "loom/kernels/norm/largest.h"
#include "loom/kernels/pool_resample/mix_rows.h"

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

template <class T>
void expect_mixed(SimdLevel level) {
  for (const std::int64_t count : {1, 16, 77}) {
    for (const std::int64_t mixed : {0, 1, 2, 3, 4, 5}) {
      std::vector<std::vector<float>> rows;
      std::vector<std::vector<T>> narrow;
      std::vector<const float*> from;
      std::vector<const T*> from_narrow;
      for (std::int64_t r = 0; r < mixed; ++r) {
        rows.push_back(numbers(count, static_cast<std::uint32_t>(r + 4)));
        std::vector<T>& row = narrow.emplace_back(rows.back().size());
        for (std::size_t i = 0; i < row.size(); ++i) {
          simd::round_to(row[i], rows.back()[i]);
          rows.back()[i] = simd::widen(row[i]);
        }
      }
      for (const auto& row : rows) from.push_back(row.data());
      for (const auto& row : narrow) from_narrow.push_back(row.data());
      const auto weights = numbers(std::max<std::int64_t>(mixed, 1), 9);
      std::vector<float> sums(static_cast<std::size_t>(count));
      std::vector<T> rounded(sums.size());
      pool_resample::mix_to_floats<T>.of(level)(from_narrow.data(), weights.data(), mixed, count,
                                                sums.data());
      pool_resample::mix_floats<T>.of(level)(from.data(), weights.data(), mixed, count,
                                             rounded.data());
      for (std::size_t i = 0; i < sums.size(); ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < rows.size(); ++r) sum += double{rows[r][i]} * weights[r];
        EXPECT_NEAR(sums[i], sum, 3 * kAllowed);
        T expected;
        simd::round_to(expected, sums[i]);
        EXPECT_EQ(simd::widen(rounded[i]), simd::widen(expected));
      }
    }
  }
}

TEST_P(ResampleRowsTest, RowsAreMixed) {
  expect_mixed<float>(GetParam());
  expect_mixed<simd::BFloat16>(GetParam());
  expect_mixed<simd::Half>(GetParam());
}

TEST_P(ResampleRowsTest, BitsDoNotDependOnWhereAnElementLies) {
  constexpr std::int64_t kCount = 101;
  std::vector<std::vector<float>> values;
  std::vector<const float*> rows, behind;
  const auto weights = numbers(5, 9);
  for (std::uint32_t r = 0; r < 5; ++r) values.push_back(numbers(kCount, r + 4));
  const auto mix = pool_resample::mix_to_floats<float>.of(GetParam());
  for (std::int64_t mixed = 1; mixed <= 5; ++mixed) {
    rows.push_back(values[static_cast<std::size_t>(mixed - 1)].data());
    std::vector<float> sums(kCount), alone(kCount);
    mix(rows.data(), weights.data(), mixed, kCount, sums.data());
    for (std::int64_t i = 0; i < kCount; ++i) {
      behind = rows;
      for (const float*& row : behind) row += i;
      mix(behind.data(), weights.data(), mixed, 1, &alone[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(sums, alone) << mixed;
    if (mixed != 2) continue;
    const std::vector<std::int32_t> first = places(kCount, kCount), second(kCount, 7);
    const std::vector<float> one(kCount, weights[0]), two(kCount, weights[1]);
    std::vector<float> of_elements(kCount);
    pool_resample::mix_elements.of(GetParam())({first.data(), one.data()},
                                               {second.data(), two.data()}, rows[0], kCount,
                                               of_elements.data());
    for (std::size_t i = 0; i < kCount; ++i) {
      const float* const pair[] = {rows[0] + first[i], rows[0] + second[i]};
      float sum = 0;
      mix(pair, weights.data(), 2, 1, &sum);
      EXPECT_EQ(of_elements[i], sum) << i;
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
