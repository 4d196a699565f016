// SPDX-License-Identifier: BSD-3-Clause
// Planes that are pooled some at a time against each of them by itself.
#include "loom/kernels/pool_resample/plane_groups.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::pool_resample {
namespace {

template <class T>
class PlaneGroupsTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, simd::BFloat16, simd::Half>;
TYPED_TEST_SUITE(PlaneGroupsTest, Types);

std::vector<Windows> windows() {
  const auto regular = [](std::int64_t from, std::int64_t to, std::int64_t kernel,
                          std::int64_t stride, std::int64_t padding) {
    return WindowAxis::regular(from, to, kernel, stride, padding, 1, true);
  };
  const WindowAxis one = regular(1, 1, 1, 1, 0);
  return {{one, regular(8, 4, 2, 2, 0), regular(6, 3, 2, 2, 0)},
          {one, regular(7, 4, 3, 2, 1), regular(13, 7, 3, 2, 1)},
          {regular(3, 3, 3, 1, 1), regular(4, 2, 2, 2, 0), regular(5, 5, 3, 1, 1)},
          {one, WindowAxis::adaptive(7, 3), WindowAxis::adaptive(9, 4)}};
}

template <class T>
std::vector<T> random(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  const auto floats = testing::elements<float>(count, 3);
  for (std::size_t i = 0; i < values.size(); ++i) simd::round_to(values[i], floats[i]);
  return values;
}

/// The room of a call, and one byte that it must not touch.
class Room {
 public:
  Room(const Windows& turned, std::size_t item_bytes)
      : bytes_(static_cast<std::size_t>(bytes_of_room(turned, item_bytes))),
        memory_(bytes_ + 65, std::byte{7}) {}
  ~Room() { EXPECT_EQ(start()[bytes_], std::byte{7}); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  std::byte* start() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (64 - at % 64) % 64;
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> memory_;
};

template <class T>
void expect_near(const std::vector<T>& values, const std::vector<T>& expected, double allowed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(simd::widen(values[i]));
    const auto right = static_cast<double>(simd::widen(expected[i]));
    EXPECT_TRUE(std::abs(value - right) <= allowed || (std::isnan(value) && std::isnan(right)))
        << value << " for " << right << " at " << i;
  }
}

TYPED_TEST(PlaneGroupsTest, Maxima) {
  using T = TypeParam;
  for (const Windows& w : windows()) {
    if (w.columns.kernel == 0) continue;  // Adaptive maxima are ATen's.
    for (const std::int64_t planes : {8, 11, 32}) {
      const std::int64_t input = w.input_rows() * w.input_row();
      const std::int64_t result = w.result_rows() * w.result_row();
      auto from = random<T>(planes * input);
      for (std::size_t i = 0; i < from.size(); i += 17) {
        simd::round_to(from[i], std::numeric_limits<float>::quiet_NaN());
      }
      std::vector<T> to(static_cast<std::size_t>(planes * result)), expected(to);
      std::vector<std::int64_t> places(to.size(), -1), expected_places(to.size());
      std::vector<WideOf<T>> row_room(static_cast<std::size_t>(w.room()));
      for (std::int64_t i = 0; i < planes * w.result_rows(); ++i) {
        largest_row(w, i % w.result_rows(), from.data() + i / w.result_rows() * input,
                    row_room.data(), expected.data() + i * w.result_row(),
                    expected_places.data() + i * w.result_row());
      }
      const Windows turned = of_turned(w, planes);
      Room room(turned, sizeof(T));
      largest_planes(turned, from.data(), room.start(), to.data(), places.data());
      expect_near(to, expected, 0);
      EXPECT_EQ(places, expected_places);
      std::fill(to.begin(), to.end(), T{});
      largest_planes<T>(turned, from.data(), room.start(), to.data(), nullptr);
      expect_near(to, expected, 0);
    }
  }
}

TYPED_TEST(PlaneGroupsTest, Averages) {
  using T = TypeParam;
  const double allowed = std::numeric_limits<WideOf<T>>::epsilon() * (sizeof(T) == 2 ? 1 << 16 : 8);
  for (const Windows& w : windows()) {
    for (const std::int64_t planes : {8, 11, 32}) {
      const std::int64_t input = w.input_rows() * w.input_row();
      const std::int64_t result = w.result_rows() * w.result_row();
      const auto from = random<T>(planes * input), grad = random<T>(planes * result);
      std::vector<T> to(grad.size()), expected(to), to_grad(from.size()), expected_grad(to_grad);
      std::vector<WideOf<T>> row_room(static_cast<std::size_t>(w.room()));
      for (std::int64_t i = 0; i < planes * w.result_rows(); ++i) {
        average_row(w, i % w.result_rows(), {0, 1}, from.data() + i / w.result_rows() * input,
                    row_room.data(), expected.data() + i * w.result_row());
      }
      for (std::int64_t i = 0; i < planes * w.input_rows(); ++i) {
        average_gradient_row(w, i % w.input_rows(), grad.data() + i / w.input_rows() * result,
                             row_room.data(), expected_grad.data() + i * w.input_row());
      }
      const Windows turned = of_turned(w, planes);
      Room room(turned, sizeof(T));
      average_planes(turned, from.data(), room.start(), to.data());
      expect_near(to, expected, allowed);
      average_gradient_planes(turned, grad.data(), room.start(), to_grad.data());
      expect_near(to_grad, expected_grad, allowed);
    }
  }
}

TEST(PlanesAtATimeTest, ChannelsAndLongRowsAreNotGrouped) {
  Windows w = windows()[0];
  EXPECT_EQ(planes_at_a_time(w, 1, 4), 8) << "sums are in one order, whatever else is pooled";
  EXPECT_EQ(planes_at_a_time(w, 8, 4), 8);
  EXPECT_EQ(planes_at_a_time(w, 4096, 4), 32);
  EXPECT_EQ(planes_at_a_time(of_turned(w, 8), 4096, 4), 0);
  w.columns = WindowAxis::regular(100, 50, 2, 2, 0, 1, true);
  EXPECT_EQ(planes_at_a_time(w, 4096, 4), 0);
}

}  // namespace
}  // namespace loom::kernels::pool_resample
