// SPDX-License-Identifier: BSD-3-Clause
// What is computed again tap by tap: infinities meet no padding.
#include "loom/kernels/conv/direct.h"

#include "loom/kernels/conv/direct_gradient.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::conv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Two images of two channels, 4 x 3 pixels, windows of 3 x 3 with padding.
Windows windows() {
  return {.images = 2, .channels = 2, .y = {4, 4, 3, 1, 1, 1}, .x = {3, 3, 3, 1, 1, 1}};
}

/// Calls function(tap, place) for the taps of a pixel that see the plane.
template <class Function>
void for_each_seen(const Windows& w, std::int64_t pixel, Function&& function) {
  for (std::int64_t tap = 0; tap < w.taps(); ++tap) {
    const std::int64_t y = pixel / w.x.result + tap / w.x.kernel - 1;
    const std::int64_t x = pixel % w.x.result + tap % w.x.kernel - 1;
    if (y >= 0 && y < w.y.size && x >= 0 && x < w.x.size) function(tap, y * w.x.size + x);
  }
}

TEST(DirectConvolutionTest, ElementsThatAreNotFiniteAreComputedAgain) {
  const Windows w = windows();
  const auto images = testing::elements<float>(w.images * w.channels * w.plane(), 1);
  auto weights = testing::elements<float>(w.rows(), 2);
  weights[0] = kInfinity;  // above and to the left: the first row and column do not see it
  std::vector<float> result(static_cast<std::size_t>(w.pixels()), kNan);
  result[2] = 7;
  const Convolution<float> convolution{
      result.data(), images.data(), weights.data(), nullptr, 1, false, false, w};
  EXPECT_TRUE(convolution.needs_mending());
  convolution.mend({0, w.pixels()}, {0, 1});
  EXPECT_EQ(result[2], 7);
  for (std::int64_t pixel = 0; pixel < w.pixels(); ++pixel) {
    if (pixel == 2) continue;
    double sum = 0;
    const std::int64_t image = pixel / w.result_plane();
    for (std::int64_t c = 0; c < w.channels; ++c) {
      for_each_seen(w, pixel % w.result_plane(), [&](std::int64_t tap, std::int64_t place) {
        sum += double{weights[c * w.taps() + tap]} *
               double{images[(image * w.channels + c) * w.plane() + place]};
      });
    }
    if (std::isfinite(sum)) {
      EXPECT_NEAR(result[pixel], sum, 18 * 0x1p-24) << pixel;
    } else {
      EXPECT_FALSE(std::isfinite(result[pixel])) << pixel;
    }
  }
}

TEST(DirectConvolutionTest, TapsOfAPlaneThatSeeNoInfinityAreFinite) {
  Windows w = windows();
  const auto plane = testing::elements<float>(w.plane(), 1);
  auto gradient = testing::elements<float>(w.result_plane(), 2);
  gradient[0] = kInfinity;  // the first taps see padding from there
  std::vector<float> sums(9);
  add_plane_taps(w.y, w.x, plane.data(), gradient.data(), sums.data());
  EXPECT_TRUE(std::isfinite(sums[0]));
  EXPECT_FALSE(std::isfinite(sums[4]));
  std::vector<float> result(static_cast<std::size_t>(w.result_plane()));
  sum_plane<float, float>(w.y, w.x, plane.data(), sums.data(), 0, {0, w.y.result}, result.data(),
                          w.x.result);
  EXPECT_FALSE(std::isfinite(result[5]));
}

TEST(DirectWeightGradientTest, SpoiltElementsAreCountedAndComputedAgain) {
  const Windows w = windows();
  const auto images = testing::elements<float>(w.images * w.channels * w.plane(), 1);
  const auto gradient = testing::elements<float>(w.pixels(), 2);
  std::vector<float> result(static_cast<std::size_t>(w.rows()), 5);
  const DirectWeightGradient<float> direct{
      result.data(), gradient.data(), images.data(), 1, false, w};
  EXPECT_EQ(direct.spoilt(), 0);
  result[3] = kNan;
  result[10] = kInfinity;
  EXPECT_EQ(direct.spoilt(), 2);
  direct.mend(0);
  std::vector<double> sums(result.size());
  for (std::int64_t pixel = 0; pixel < w.pixels(); ++pixel) {
    const std::int64_t image = pixel / w.result_plane();
    for (std::int64_t c = 0; c < w.channels; ++c) {
      for_each_seen(w, pixel % w.result_plane(), [&](std::int64_t tap, std::int64_t place) {
        sums[c * w.taps() + tap] +=
            double{gradient[pixel]} * double{images[(image * w.channels + c) * w.plane() + place]};
      });
    }
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (i == 3 || i == 10) {
      EXPECT_LE(testing::ulps(result[i], sums[i]), 0.5);
    } else {
      EXPECT_EQ(result[i], 5);
    }
  }
}

}  // namespace
}  // namespace loom::kernels::conv
