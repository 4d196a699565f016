// SPDX-License-Identifier: BSD-3-Clause
// Max pooling against a loop over windows: exactly the same elements and places.
#include "loom/kernels/pool_resample/max_pool.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <limits>
#include <vector>

namespace loom::kernels::pool_resample {
namespace {

using simd::BFloat16;

PoolWindow::Side side(std::int64_t from, std::int64_t kernel, std::int64_t stride,
                      std::int64_t padding, std::int64_t dilation) {
  PoolWindow::Side made{.from = from,
                        .to = (from + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1,
                        .kernel = kernel,
                        .stride = stride,
                        .padding = padding,
                        .dilation = dilation,
                        .pitch = 0};
  made.pitch = made.pitch_of();
  return made;
}

const PoolWindow kWindows[] = {
    {side(9, 3, 2, 1, 1), side(37, 3, 2, 1, 1)},  {side(8, 2, 2, 0, 1), side(64, 2, 2, 0, 1)},
    {side(11, 3, 1, 1, 2), side(50, 5, 1, 2, 2)}, {side(7, 7, 3, 3, 1), side(33, 4, 3, 2, 3)},
    {side(5, 1, 4, 0, 1), side(40, 1, 3, 0, 1)},
};

class MaxPoolTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_same(const PoolWindow& window, const std::vector<T>& plane) {
    const PoolWindow::Side &rows = window.rows, &columns = window.columns;
    std::vector<T> to(static_cast<std::size_t>(rows.to * columns.to));
    std::vector<std::int64_t> places(to.size());
    std::vector<float> scratch(static_cast<std::size_t>(window.scratch()));
    max_pool<T>.of(GetParam())(window, to.data(), places.data(), plane.data(), scratch.data());
    for (std::int64_t y = 0; y < rows.to; ++y) {
      for (std::int64_t x = 0; x < columns.to; ++x) {
        const std::int64_t place = place_of(window, plane, y, x);
        const std::size_t at = static_cast<std::size_t>(y * columns.to + x);
        EXPECT_EQ(places[at], place) << y << ", " << x;
        const float value = simd::widen(to[at]), expected = simd::widen(plane[place]);
        EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)));
      }
    }
  }

  /// The last NaN of a window, or its first largest element.
  template <class T>
  static std::int64_t place_of(const PoolWindow& window, const std::vector<T>& plane,
                               std::int64_t y, std::int64_t x) {
    const PoolWindow::Side &rows = window.rows, &columns = window.columns;
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < rows.kernel; ++i) {
      for (std::int64_t j = 0; j < columns.kernel; ++j) {
        const std::int64_t row = y * rows.stride - rows.padding + i * rows.dilation;
        const std::int64_t column = x * columns.stride - columns.padding + j * columns.dilation;
        if (row < 0 || row >= rows.from || column < 0 || column >= columns.from) continue;
        const std::int64_t place = row * columns.from + column;
        const float value = simd::widen(plane[place]);
        if (best < 0 || value > simd::widen(plane[best]) || std::isnan(value)) best = place;
      }
    }
    return best;
  }

  template <class T>
  void expect_all() {
    for (const PoolWindow& window : kWindows) {
      auto plane = testing::elements<T>(window.rows.from * window.columns.from, 1);
      expect_same(window, plane);
      for (std::size_t i = 0; i < plane.size(); i += 13) {
        simd::round_to(plane[i], std::numeric_limits<float>::quiet_NaN());
      }
      expect_same(window, plane);
      for (T& value : plane) simd::round_to(value, -std::numeric_limits<float>::infinity());
      expect_same(window, plane);
    }
  }
};
LOOM_TEST_SIMD_LEVELS(MaxPoolTest);

TEST_P(MaxPoolTest, OfFloats) { expect_all<float>(); }
TEST_P(MaxPoolTest, OfBFloat16) { expect_all<BFloat16>(); }

}  // namespace
}  // namespace loom::kernels::pool_resample
