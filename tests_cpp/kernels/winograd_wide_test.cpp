// SPDX-License-Identifier: BSD-3-Clause
// The transforms of F(4x4, 3x3) against their matrices in double precision, and all of them
// together against a convolution.
#include "loom/kernels/conv/winograd_wide.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::conv {
namespace {

using simd::BFloat16;

constexpr std::int64_t kCount = 35;  // two whole vectors and a part of one
constexpr std::int64_t kStep = 48;   // whole vectors
constexpr std::int64_t kTapCount = 9;

/// Row after row, of as many columns as what it is applied to has rows.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> elements;

  [[nodiscard]] Matrix transposed() const {
    Matrix made{columns, rows, std::vector<double>(elements.size())};
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        made.elements[j * rows + i] = elements[i * columns + j];
      }
    }
    return made;
  }
};
const Matrix kToPoints{6, 6, {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,
                              0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1}};
const Matrix kOfTaps{6,
                     3,
                     {1. / 4, 0, 0, -1. / 6, -1. / 6, -1. / 6, -1. / 6, 1. / 6, -1. / 6, 1. / 24,
                      1. / 12, 1. / 6, 1. / 24, -1. / 12, 1. / 6, 0, 0, 1}};
const Matrix kToPixels{
    4, 6, {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 0, 0, 1, 1, 4, 4, 0, 0, 1, -1, 8, -8, 1}};

/// An element, and the sum of the sizes of what it is a sum of.
struct Reference {
  double sum = 0, sizes = 0;
};

/// M X M', X square.
template <class Element>
std::vector<Reference> transformed(const Matrix& m, const Element& element) {
  std::vector<Reference> made(static_cast<std::size_t>(m.rows * m.rows));
  for (std::int64_t y = 0; y < m.rows; ++y) {
    for (std::int64_t x = 0; x < m.rows; ++x) {
      Reference& to = made[y * m.rows + x];
      for (std::int64_t i = 0; i < m.columns; ++i) {
        for (std::int64_t j = 0; j < m.columns; ++j) {
          const double term = m.elements[y * m.columns + i] * m.elements[x * m.columns + j] *
                              element(i * m.columns + j);
          to.sum += term;
          to.sizes += std::abs(term);
        }
      }
    }
  }
  return made;
}

// Of up to six operations in a row, in both directions, each half a unit in the last place.
constexpr double kAllowed = 12 * 0x1p-24;
// Of a result that is rounded to bfloat16 beside that.
constexpr double kRounded = 0x1p-8;

std::vector<BFloat16> halves(std::int64_t count, std::uint32_t seed) {
  const auto values = testing::numbers(count, seed);
  std::vector<BFloat16> made(values.size());
  for (std::size_t i = 0; i < made.size(); ++i) simd::round_to(made[i], values[i]);
  return made;
}

class WideTest : public testing::SimdTest {
 protected:
  static void expect_points(const std::vector<float>& points, std::int64_t channel,
                            const std::vector<Reference>& expected) {
    for (std::int64_t i = 0; i < kWidePoints; ++i) {
      EXPECT_NEAR(points[i * kStep + channel], expected[i].sum, kAllowed * expected[i].sizes)
          << "point " << i << " of channel " << channel;
    }
  }

  static std::vector<float> make_points() {
    return std::vector<float>(static_cast<std::size_t>(kWidePoints * kStep));
  }
};
LOOM_TEST_SIMD_LEVEL(WideTest, SimdLevel::kAvx512Bf16);

TEST_P(WideTest, TilesBecomePoints) {
  constexpr std::int64_t kRowStep = 7 * kCount;  // a row has more pixels than the tile sees
  const auto pixels = halves(6 * kRowStep, 1);
  auto points = make_points();
  wide_tile_to_points(pixels.data(), kRowStep, kCount, points.data(), kStep);
  for (std::int64_t c = 0; c < kCount; ++c) {
    expect_points(points, c, transformed(kToPoints, [&](std::int64_t i) {
                    return simd::widen(pixels[i / 6 * kRowStep + i % 6 * kCount + c]);
                  }));
  }
}

TEST_P(WideTest, TapsBecomePoints) {
  const auto taps = halves(kTapCount * kCount, 2);
  for (const bool turned : {false, true}) {
    auto points = make_points();
    wide_taps_to_points(taps.data(), kCount, turned, points.data(), kStep);
    for (std::int64_t f = 0; f < kCount; ++f) {
      expect_points(points, f, transformed(kOfTaps, [&](std::int64_t i) {
                      return simd::widen(taps[(turned ? 8 - i : i) * kCount + f]);
                    }));
    }
  }
}

TEST_P(WideTest, PixelsOfAGradientBecomePoints) {
  constexpr std::int64_t kPixelStep = 40, kRowStep = 5 * kPixelStep;
  const auto pixels = halves(4 * kRowStep, 3);
  auto points = make_points();
  wide_pixels_to_points(pixels.data(), kRowStep, kPixelStep, kCount, points.data(), kStep);
  for (std::int64_t f = 0; f < kCount; ++f) {
    expect_points(points, f, transformed(kToPixels.transposed(), [&](std::int64_t i) {
                    return simd::widen(pixels[i / 4 * kRowStep + i % 4 * kPixelStep + f]);
                  }));
  }
}

TEST_P(WideTest, ProductsBecomePixels) {
  constexpr std::int64_t kPixelStep = 40, kRowStep = 4 * kPixelStep;
  const auto products = testing::numbers(kWidePoints * kStep, 4);
  const auto bias = halves(kCount, 5);
  for (const bool added : {false, true}) {
    for (const std::int64_t rows : {1, 4}) {
      for (const std::int64_t columns : {2, 4}) {
        std::vector<BFloat16> made(4 * kRowStep, BFloat16{7});
        EXPECT_TRUE(wide_products_to_pixels(products.data(), kStep, kCount,
                                            added ? bias.data() : nullptr,
                                            {made.data(), kRowStep, kPixelStep, rows, columns}));
        for (std::int64_t f = 0; f < kPixelStep; ++f) {
          const auto expected = transformed(
              kToPixels, [&](std::int64_t i) { return double{products[i * kStep + f]}; });
          for (std::int64_t i = 0; i < 16; ++i) {
            const BFloat16 pixel = made[i / 4 * kRowStep + i % 4 * kPixelStep + f];
            if (f >= kCount || i / 4 >= rows || i % 4 >= columns) {
              EXPECT_EQ(pixel.bits, 7) << "what does not exist is not written";
              continue;
            }
            const double sum = expected[i].sum + (added ? simd::widen(bias[f]) : 0);
            EXPECT_NEAR(simd::widen(pixel), sum,
                        kRounded * std::abs(sum) + kAllowed * (expected[i].sizes + 1));
          }
        }
      }
    }
  }
}

TEST_P(WideTest, WhatIsNotFiniteIsNoticed) {
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const std::int64_t filter : {std::int64_t{3}, kCount - 1}) {
      auto products = testing::numbers(kWidePoints * kStep, 6);
      std::vector<BFloat16> made(16 * kCount);
      products[7 * kStep + kCount] = wrong;  // no filter's
      EXPECT_TRUE(wide_products_to_pixels(products.data(), kStep, kCount, nullptr,
                                          {made.data(), 4 * kCount, kCount, 4, 4}));
      products[7 * kStep + filter] = wrong;
      EXPECT_FALSE(wide_products_to_pixels(products.data(), kStep, kCount, nullptr,
                                           {made.data(), 4 * kCount, kCount, 4, 4}));
    }
  }
}

TEST_P(WideTest, SumsBecomeTaps) {
  const auto sums = testing::numbers(kWidePoints * kStep, 7);
  std::vector<BFloat16> taps(kTapCount * kCount + 1, BFloat16{7});
  wide_sums_to_taps(sums.data(), kStep, kCount, taps.data());
  for (std::int64_t c = 0; c < kCount; ++c) {
    const auto expected = transformed(kOfTaps.transposed(),
                                      [&](std::int64_t i) { return double{sums[i * kStep + c]}; });
    for (std::int64_t tap = 0; tap < kTapCount; ++tap) {
      EXPECT_NEAR(simd::widen(taps[tap * kCount + c]), expected[tap].sum,
                  kRounded * std::abs(expected[tap].sum) + kAllowed * expected[tap].sizes);
    }
  }
  EXPECT_EQ(taps.back().bits, 7);
}

// The matrices are those of a convolution: without this they could be wrong in the test, too.
TEST_P(WideTest, AllTogetherAreAConvolution) {
  const auto tile = halves(kWidePoints * kCount, 8), taps = halves(kTapCount * kCount, 9);
  auto points = make_points(), weights = make_points();
  wide_tile_to_points(tile.data(), 6 * kCount, kCount, points.data(), kStep);
  wide_taps_to_points(taps.data(), kCount, false, weights.data(), kStep);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] *= weights[i];
  std::vector<BFloat16> made(16 * kCount);
  EXPECT_TRUE(wide_products_to_pixels(points.data(), kStep, kCount, nullptr,
                                      {made.data(), 4 * kCount, kCount, 4, 4}));
  for (std::int64_t c = 0; c < kCount; ++c) {
    for (std::int64_t i = 0; i < 16; ++i) {
      double sum = 0;
      for (std::int64_t tap = 0; tap < kTapCount; ++tap) {
        const std::int64_t y = i / 4 + tap / 3, x = i % 4 + tap % 3;
        sum += double{simd::widen(tile[(6 * y + x) * kCount + c])} *
               simd::widen(taps[tap * kCount + c]);
      }
      EXPECT_NEAR(simd::widen(made[i * kCount + c]), sum, kRounded * std::abs(sum) + 1e-5);
    }
  }
}

}  // namespace
}  // namespace loom::kernels::conv
