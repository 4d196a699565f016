// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/tile_rows.h"

#include "loom/kernels/conv/mending.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::conv {
namespace {

using testing::numbers;

class TileRowsTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(TileRowsTest);

TEST_P(TileRowsTest, AreCopiedOutAndIn) {
  std::vector<TileCopy> copies;
  std::int64_t at = 0;
  for (const std::int64_t count : {1, 3, 4, 7, 8, 15, 16, 17, 33}) {
    copies.push_back({at, at + 5, count});
    at += count + 2;
  }
  const auto image = numbers(at, 1);
  std::vector<float> rows(static_cast<std::size_t>(at + 5)), expected = rows, back(image.size()),
                                                             expected_back = back;
  copy_out.of(GetParam())(image.data(), copies, rows.data());
  copy_in.of(GetParam())(rows.data(), copies, back.data());
  for (const TileCopy& copy : copies) {
    for (std::int64_t i = 0; i < copy.count; ++i) {
      expected[copy.row + i] = expected_back[copy.image + i] = image[copy.image + i];
    }
  }
  EXPECT_EQ(rows, expected);
  EXPECT_EQ(back, expected_back);
}

TEST_P(TileRowsTest, AreSplitIntoTiles) {
  constexpr std::int64_t kRows = 6, kLd = 80, kTiles = 70;
  const auto rows = numbers(kRows * kLd + 64, 2);
  for (const std::int64_t longest : {3, 7, 20}) {
    const std::vector<TileRun> runs{{0, 0, longest}, {2 * kLd, longest, longest - 1}};
    std::vector<float> tiles(16 * kTiles);
    split_tiles.of(GetParam())(rows.data(), kLd, runs, longest, tiles.data(), kTiles);
    for (const TileRun& run : runs) {
      for (std::int64_t tile = 0; tile < run.count; ++tile) {
        for (std::int64_t i = 0; i < 16; ++i) {
          ASSERT_EQ(tiles[i * kTiles + run.column + tile],
                    rows[run.row + i / 4 * kLd + 2 * tile + i % 4]);
        }
      }
    }
  }
}

TEST_P(TileRowsTest, WhatIsNotFiniteIsFound) {
  for (const std::int64_t count : {1, 16, 100}) {
    for (const float wrong : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
      auto values = numbers(count, 3);
      values[0] = std::numeric_limits<float>::max() / 2;
      std::vector<simd::BFloat16> halves(values.size());
      const auto all = [&] {
        for (std::size_t i = 0; i < halves.size(); ++i) simd::round_to(halves[i], values[i]);
        const bool found = all_finite<float>.of(GetParam())(values.data(), count);
        EXPECT_EQ(all_finite<simd::BFloat16>.of(GetParam())(halves.data(), count), found);
        return found;
      };
      EXPECT_TRUE(all());
      values[static_cast<std::size_t>(count - 1)] = wrong;
      EXPECT_FALSE(all());
    }
  }
}

TEST_P(TileRowsTest, ProductsOutsideCountForNothing) {
  constexpr std::int64_t kCount = 2 * kMaskedStep;
  auto window = numbers(kCount, 4);
  const auto weights = numbers(kCount, 5);
  std::vector<std::int32_t> inside(kCount);
  double sum = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    if (i % 5 == 0) {
      window[i] = std::numeric_limits<float>::infinity();
    } else {
      inside[i] = -1;
      sum += double{window[i]} * weights[i];
    }
  }
  const float got = masked_dot.of(GetParam())(window.data(), weights.data(), inside.data(), kCount);
  EXPECT_NEAR(got, sum, kCount * 0x1p-24);
}

TEST_P(TileRowsTest, SumsInDoublePrecision) {
  const auto a = numbers(101, 6), b = numbers(303, 7);
  for (const std::int64_t step : {1, 3}) {
    double sum = 0;
    for (std::int64_t i = 0; i < 101; ++i) sum += double{a[i]} * b[i * step];
    EXPECT_NEAR(exact_dot.of(GetParam())(a.data(), b.data(), 101, step), sum, 101 * 0x1p-53);
  }
}

}  // namespace
}  // namespace loom::kernels::conv
