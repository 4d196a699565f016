// SPDX-License-Identifier: BSD-3-Clause
// Winograd's transforms against the convolution of a tile, and the other way round.
#include "loom/kernels/conv/winograd.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::conv {
namespace {

using testing::numbers;

constexpr std::int64_t kCount = 35;  // two whole vectors, and one that overlaps
constexpr std::int64_t kWidth = 32;
// Half units in the last place of numbers up to 4: sums of 9 products of numbers below 1, through
// transforms whose factors are below 4.
constexpr double kAllowed = 4 * 9 * 0x1p-24;

/// Pixel (y, x) of the convolution of a tile (16 elements) with taps (9).
template <class Tile, class Taps>
double pixel(const Tile& tile, const Taps& taps, int y, int x) {
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) sum += double{tile(4 * (y + i) + x + j)} * taps(3 * i + j);
  }
  return sum;
}

class WinogradTest : public testing::SimdTest {
 protected:
  static std::vector<const float*> rows(const std::vector<float>& values, std::int64_t count,
                                        std::int64_t step) {
    std::vector<const float*> made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(values.data() + i * step);
    return made;
  }
};
LOOM_TEST_SIMD_LEVELS(WinogradTest);

TEST_P(WinogradTest, TilesOfOneChannel) {
  const auto tiles = numbers(kTilePoints * kWidth, 1), taps = numbers(kTaps * kWidth, 2);
  std::vector<float> points(kTilePoints * kWidth), weights(points.size()), pixels(4 * kWidth);
  tiles_to_points.of(GetParam())(tiles.data(), kWidth, kWidth, points.data(), kWidth);
  taps_to_points.of(GetParam())(taps.data(), kWidth, weights.data(), kWidth);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] *= weights[i];
  products_to_rows.of(GetParam())(points.data(), kWidth, kWidth, 0.25F, pixels.data());
  for (std::int64_t tile = 0; tile < kWidth; ++tile) {
    const auto element = [&](int i) { return tiles[i * kWidth + tile]; };
    const auto tap = [&](int i) { return taps[i * kWidth + tile]; };
    for (int y = 0; y < 2; ++y) {
      for (int x = 0; x < 2; ++x) {
        EXPECT_NEAR(pixels[y * 2 * kWidth + 2 * tile + x], pixel(element, tap, y, x) + 0.25,
                    kAllowed);
      }
    }
  }
}

TEST_P(WinogradTest, ChannelsOfOneTile) {
  const auto tile = numbers(kTilePoints * kCount, 3), taps = numbers(kTaps * kCount, 4),
             bias = numbers(kCount, 5);
  std::vector<float> points(kTilePoints * kCount), weights(points.size()), made(4 * kCount);
  tile_to_points.of(GetParam())(rows(tile, kTilePoints, kCount).data(), kCount, points.data(),
                                kCount);
  taps_to_points.of(GetParam())(taps.data(), kCount, weights.data(), kCount);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] *= weights[i];
  std::vector<float*> pixels;
  for (std::int64_t i = 0; i < kTilePixels; ++i) pixels.push_back(made.data() + i * kCount);
  EXPECT_TRUE(
      products_to_pixels.of(GetParam())(points.data(), kCount, kCount, bias.data(), pixels.data()));
  for (std::int64_t c = 0; c < kCount; ++c) {
    const auto element = [&](int i) { return tile[i * kCount + c]; };
    const auto tap = [&](int i) { return taps[i * kCount + c]; };
    for (int y = 0; y < 2; ++y) {
      for (int x = 0; x < 2; ++x) {
        EXPECT_NEAR(made[(2 * y + x) * kCount + c], pixel(element, tap, y, x) + bias[c], kAllowed);
      }
    }
  }
  points[5 * kCount + 17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(
      products_to_pixels.of(GetParam())(points.data(), kCount, kCount, bias.data(), pixels.data()));
}

TEST_P(WinogradTest, TheGradientOfWeights) {
  const auto tile = numbers(kTilePoints * kCount, 6), gradient = numbers(kTilePixels * kCount, 7);
  std::vector<float> points(kTilePoints * kCount), sums(points.size()), taps(kTaps * kCount);
  tile_to_points.of(GetParam())(rows(tile, kTilePoints, kCount).data(), kCount, points.data(),
                                kCount);
  pixels_to_points.of(GetParam())(rows(gradient, kTilePixels, kCount).data(), 0, kCount,
                                  sums.data(), kCount);
  for (std::size_t i = 0; i < points.size(); ++i) sums[i] *= points[i];
  sums_to_taps.of(GetParam())(sums.data(), kCount, kCount, taps.data());
  for (std::int64_t c = 0; c < kCount; ++c) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        double sum = 0;
        for (int y = 0; y < 2; ++y) {
          for (int x = 0; x < 2; ++x) {
            sum += double{tile[(4 * (y + i) + x + j) * kCount + c]} *
                   gradient[(2 * y + x) * kCount + c];
          }
        }
        EXPECT_NEAR(taps[(3 * i + j) * kCount + c], sum, kAllowed);
      }
    }
  }
}

TEST_P(WinogradTest, TheGradientInRowsIsThatOfPixels) {
  const auto in_rows = numbers(kTilePixels * kWidth, 8);
  std::vector<float> pixels(in_rows.size()), points(kTilePoints * kWidth), expected(points.size());
  for (std::int64_t tile = 0; tile < kWidth; ++tile) {
    for (int i = 0; i < 4; ++i) {
      pixels[i * kWidth + tile] = in_rows[i / 2 * 2 * kWidth + 2 * tile + i % 2];
    }
  }
  rows_to_points.of(GetParam())(in_rows.data(), kWidth, points.data(), kWidth);
  pixels_to_points.of(GetParam())(rows(pixels, kTilePixels, kWidth).data(), 0, kWidth,
                                  expected.data(), kWidth);
  EXPECT_EQ(points, expected);
}

}  // namespace
}  // namespace loom::kernels::conv
