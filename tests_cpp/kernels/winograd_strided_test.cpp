// SPDX-License-Identifier: BSD-3-Clause
// F(2x2, 4x4) of even and odd rows, columns and taps against a 7x7 convolution with stride 2.
#include "loom/kernels/conv/winograd_strided.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::conv::strided {
namespace {

using testing::numbers;

constexpr std::int64_t kChannels = 2, kInner = kKindCount * kChannels;
constexpr std::int64_t kRows = kTileStep + 5;  // that a row of tiles sees
constexpr std::int64_t kLine = kTileStep * (kChunk + 2 * kLane);
// Sums of 98 products below 1. The error is twice that of a plain convolution, and its transforms'
// factors are below 16.
constexpr double kAllowed = 98 * 16 * 0x1p-24;

class StridedTest : public testing::SimdTest {
 protected:
  StridedTest()
      : image_(numbers(kChannels * kRows * kLine, 1)),
        taps_(numbers(kChannels * kTaps * kLane, 2)) {}

  /// A pixel of a filter in double precision.
  [[nodiscard]] double pixel(std::int64_t filter, std::int64_t tile, std::int64_t y,
                             std::int64_t x) const {
    double sum = kBias[filter];
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (std::int64_t i = 0; i < kTaps; ++i) {
        const std::int64_t row = 2 * y + i / kKernel;
        const std::int64_t column = kTileStep * tile + 2 * x + i % kKernel;
        sum += double{image_[(c * kRows + row) * kLine + column]} *
               taps_[(c * kTaps + i) * kLane + filter];
      }
    }
    return sum;
  }

  /// [point of x][kind][channel][point of y][tile], as multiply() takes them.
  [[nodiscard]] std::vector<float> points() const {
    std::vector<float> rows(kRows * kRowPoints * kChunk), memory(kLine);
    std::vector<float> made(kPoints * kInner * kChunk);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        transform_row(&image_[(c * kRows + row) * kLine], kChunk, &rows[row * kRowPoints * kChunk],
                      kChunk, memory.data());
      }
      for (std::int64_t kind = 0; kind < kKindCount; ++kind) {
        const auto [odd_y, odd_x] = kKinds[kind];
        for (std::int64_t x = 0; x < (odd_x == 0 ? kSide : kOddSide); ++x) {
          const float* from = &rows[(odd_y * kRowPoints + odd_x * kSide + x) * kChunk];
          float* to = &made[(x * kInner + kind * kChannels + c) * kSide * kChunk];
          (odd_y == 0 ? transform_even_rows : transform_odd_rows)(from, 2 * kRowPoints * kChunk,
                                                                  kChunk, to, kChunk);
        }
      }
    }
    return made;
  }

  /// [point of x][kind][channel][point of y][filter] of the first filters.
  [[nodiscard]] std::vector<float> weights() const {
    std::vector<float> made(kPoints * kInner * kLane), some(kPoints * kInner * kFilters);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      transform_taps(&taps_[c * kTaps * kLane], kLane, &made[c * kSide * kLane],
                     kChannels * kSide * kLane, kInner * kSide * kLane);
    }
    for (std::int64_t i = 0; i < kPoints * kInner; ++i) {
      for (std::int64_t f = 0; f < kFilters; ++f) some[i * kFilters + f] = made[i * kLane + f];
    }
    return some;
  }

  static constexpr std::array<float, kFilters> kBias = {0.25F, -1, 3};
  const std::vector<float> image_, taps_;
};
LOOM_TEST_SIMD_LEVEL(StridedTest, SimdLevel::kAvx512);

TEST_P(StridedTest, IsTheConvolution) {
  constexpr std::int64_t kStep = 4 * kChunk;
  std::vector<float> rows(kFilters * kStep), planes(rows.size());
  const auto points = this->points(), weights = this->weights();
  EXPECT_TRUE(multiply(points.data(), kChunk, weights.data(), kChannels, kBias.data(),
                       {rows.data(), kStep, 2 * kChunk, true, 1}));
  EXPECT_TRUE(multiply(points.data(), kChunk, weights.data(), kChannels, kBias.data(),
                       {planes.data(), kStep, 2 * kChunk, false, kChunk}));
  for (std::int64_t f = 0; f < kFilters; ++f) {
    for (std::int64_t tile = 0; tile < kChunk; ++tile) {
      for (std::int64_t y = 0; y < 2; ++y) {
        for (std::int64_t x = 0; x < 2; ++x) {
          const float made = rows[f * kStep + y * 2 * kChunk + 2 * tile + x];
          EXPECT_NEAR(made, pixel(f, tile, y, x), kAllowed) << f << ", " << tile;
          EXPECT_EQ(planes[f * kStep + (2 * y + x) * kChunk + tile], made);
        }
      }
    }
  }
}

TEST_P(StridedTest, WhatIsNotFiniteIsNoticed) {
  std::vector<float> made(kFilters * 4 * kChunk);
  const auto weights = this->weights();
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const std::int64_t tile : {std::int64_t{0}, kChunk - 1}) {
      auto points = this->points();
      points[3 * kChunk + tile] = wrong;
      EXPECT_FALSE(multiply(points.data(), kChunk, weights.data(), kChannels, kBias.data(),
                            {made.data(), 4 * kChunk, 2 * kChunk, true, 1}));
    }
  }
}

}  // namespace
}  // namespace loom::kernels::conv::strided
