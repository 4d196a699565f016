// SPDX-License-Identifier: BSD-3-Clause
// Pooling against loops over windows: of maxima exactly the same elements and places.
#include "loom/kernels/pool_resample/pooling.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace loom::kernels::pool_resample {
namespace {

using simd::BFloat16;
using simd::Half;

WindowAxis axis(std::int64_t from, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                std::int64_t dilation = 1, bool counts_padding = true) {
  const std::int64_t to = (from + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  return WindowAxis::regular(from, to, kernel, stride, padding, dilation, counts_padding);
}
WindowAxis one() { return axis(1, 1, 1, 0); }

std::vector<Windows> windows(bool dilated) {
  std::vector<Windows> made;
  made.push_back({one(), axis(9, 3, 2, 1), axis(37, 3, 2, 1)});
  made.push_back({one(), axis(8, 2, 2, 0), axis(64, 2, 2, 0)});
  made.push_back({one(), axis(7, 7, 3, 3), axis(33, 4, 3, 2)});
  made.push_back({one(), axis(5, 1, 4, 0), axis(40, 1, 3, 0)});
  made.push_back({one(), axis(6, 3, 1, 1), axis(20, 3, 1, 1)});
  made.push_back({one(), one(), axis(100, 9, 5, 4)});
  made.push_back({axis(5, 3, 2, 1), axis(6, 2, 2, 0), axis(19, 3, 1, 1)});
  // The last windows reach beyond the padding, as with ceil_mode.
  made.push_back({one(), WindowAxis::regular(6, 3, 3, 2, 0, 1, true),
                  WindowAxis::regular(8, 4, 3, 2, 0, 1, true)});
  if (dilated) made.push_back({one(), axis(11, 3, 1, 1, 2), axis(50, 5, 1, 2, 2)});
  if (dilated) made.push_back({one(), axis(11, 3, 2, 1, 2), axis(50, 4, 3, 2, 3)});
  const std::vector<Windows> planes = made;
  for (const std::int64_t channels : {1, 3, 40, 70}) {
    for (std::size_t i = 0; i < planes.size(); i += 3) {
      Windows last = planes[i];
      last.last = true;
      last.channels = channels;
      made.push_back(last);
    }
  }
  return made;
}

/// Calls body(place in the plane) for the elements of a window, in their order.
template <class Body>
void for_window(const Windows& w, std::int64_t result, Body body) {
  const auto x = static_cast<std::size_t>(result % w.columns.to);
  const auto y = static_cast<std::size_t>(result / w.columns.to % w.rows.to);
  const auto z = static_cast<std::size_t>(result / w.columns.to / w.rows.to);
  for (auto d = w.depth.begin[z]; d < w.depth.end[z]; d += w.depth.dilation) {
    for (auto h = w.rows.begin[y]; h < w.rows.end[y]; h += w.rows.dilation) {
      for (auto v = w.columns.begin[x]; v < w.columns.end[x]; v += w.columns.dilation) {
        body((d * w.rows.from + h) * w.columns.from + v);
      }
    }
  }
}
double divisor_of(const Windows& w, std::int64_t result) {
  if (w.divisor != 0) return w.divisor;
  return w.depth.count[static_cast<std::size_t>(result / w.columns.to / w.rows.to)] *
         w.rows.count[static_cast<std::size_t>(result / w.columns.to % w.rows.to)] *
         w.columns.count[static_cast<std::size_t>(result % w.columns.to)];
}

template <class T>
double number(T value) {
  return static_cast<double>(simd::widen(value));
}
template <class T>
double allowed() {
  if (std::is_same_v<T, double>) return 1e-14;
  return std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, Half> ? 2e-3 : 2e-2;
}

template <class T>
class PoolingTest : public ::testing::Test {
 protected:
  static std::vector<T> random(std::int64_t count, std::uint32_t seed) {
    const auto floats = testing::elements<float>(count, seed);
    std::vector<T> values(floats.size());
    for (std::size_t i = 0; i < values.size(); ++i) simd::round_to(values[i], floats[i]);
    return values;
  }
  void make(const Windows& of) {
    w = of;
    from = random(w.input_rows() * w.input_row(), 1);
    grad = random(w.result_rows() * w.result_row(), 2);
    to.assign(grad.size(), T{});
    to_grad.assign(from.size(), T{});
    places.assign(grad.size(), -1);
    room.assign(static_cast<std::size_t>(w.room()) + 1, 7);
  }
  void pool() {
    for (std::int64_t row = 0; row < w.result_rows(); ++row) {
      largest_row(w, row, from.data(), room.data(), to.data() + row * w.result_row(),
                  places.data() + row * w.result_row());
    }
  }
  [[nodiscard]] std::int64_t results() const { return w.result_rows() * w.columns.to; }
  [[nodiscard]] static std::int64_t at(const Windows& w, std::int64_t place, std::int64_t channel) {
    return place * w.channels + channel;
  }
  void expect_largest() {
    pool();
    EXPECT_EQ(room.back(), 7);
    for (std::int64_t i = 0; i < results(); ++i) {
      for (std::int64_t c = 0; c < w.channels; ++c) {
        std::int64_t best = -1;
        for_window(w, i, [&](std::int64_t place) {
          const double value = number(from[at(w, place, c)]);
          if (best < 0 || value > number(from[at(w, best, c)]) || std::isnan(value)) best = place;
        });
        EXPECT_EQ(places[at(w, i, c)], best);
        const double value = number(to[at(w, i, c)]), expected = number(from[at(w, best, c)]);
        EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)));
      }
    }
    const std::vector<T> with_places = to;
    for (std::int64_t row = 0; row < w.result_rows(); ++row) {
      largest_row(w, row, from.data(), room.data(), to.data() + row * w.result_row(), nullptr);
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
      const double value = number(to[i]), expected = number(with_places[i]);
      EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)));
    }
  }
  void expect_averages() {
    for (std::int64_t row = 0; row < w.result_rows(); ++row) {
      average_row(w, row, {0, w.channels}, from.data(), room.data(),
                  to.data() + row * w.result_row());
    }
    for (std::int64_t row = 0; row < w.input_rows(); ++row) {
      average_gradient_row(w, row, grad.data(), room.data(), to_grad.data() + row * w.input_row());
    }
    EXPECT_EQ(room.back(), 7);
    std::vector<double> gradient(from.size());
    for (std::int64_t i = 0; i < results(); ++i) {
      for (std::int64_t c = 0; c < w.channels; ++c) {
        double sum = 0;
        for_window(w, i, [&](std::int64_t place) {
          sum += number(from[at(w, place, c)]);
          gradient[at(w, place, c)] += number(grad[at(w, i, c)]) / divisor_of(w, i);
        });
        EXPECT_NEAR(number(to[at(w, i, c)]), sum / divisor_of(w, i), allowed<T>());
      }
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(number(to_grad[i]), gradient[i], 4 * allowed<T>());
    }
  }

  Windows w;
  std::vector<T> from, grad, to, to_grad;
  std::vector<std::int64_t> places;
  std::vector<WideOf<T>> room;
};
using Types = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(PoolingTest, Types);

TYPED_TEST(PoolingTest, Largest) {
  for (const Windows& of : windows(/*dilated=*/true)) {
    this->make(of);
    this->expect_largest();
    for (std::size_t i = 0; i < this->from.size(); i += 13) {
      simd::round_to(this->from[i], std::numeric_limits<float>::quiet_NaN());
    }
    this->expect_largest();
    for (TypeParam& value : this->from) {
      simd::round_to(value, -std::numeric_limits<float>::infinity());
    }
    this->expect_largest();
    for (TypeParam& value : this->from) simd::round_to(value, 1.0F);
    this->expect_largest();
  }
}

TYPED_TEST(PoolingTest, Averages) {
  for (const Windows& of : windows(/*dilated=*/false)) {
    this->make(of);
    this->expect_averages();
    this->w.divisor = 5;
    this->expect_averages();
  }
}

TYPED_TEST(PoolingTest, AveragesWithoutThePadding) {
  Windows of{axis(5, 3, 2, 1, 1, false), axis(7, 3, 1, 1, 1, false), axis(19, 5, 3, 2, 1, false)};
  this->make(of);
  this->expect_averages();
}

TYPED_TEST(PoolingTest, AdaptiveAverages) {
  for (const std::int64_t to : {1, 3, 7, 10, 13}) {
    for (const bool last : {false, true}) {
      Windows of{WindowAxis::adaptive(4, 2), WindowAxis::adaptive(7, to),
                 WindowAxis::adaptive(40, to)};
      of.last = last;
      if (last) of.channels = 5;
      this->make(of);
      this->expect_averages();
    }
  }
}

}  // namespace
}  // namespace loom::kernels::pool_resample
