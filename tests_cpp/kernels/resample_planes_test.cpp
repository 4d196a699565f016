// SPDX-License-Identifier: BSD-3-Clause
// Planes made from others, and the way back, against loops over pixels.
#include "loom/kernels/pool_resample/resample_planes.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include <cstdint>
#include <vector>

namespace loom::kernels::pool_resample {
namespace {

using testing::numbers;

// Of sums of a few products below 1.
constexpr double kAllowed = 16 * 0x1p-24;

/// Between each two elements of the input, some of the result.
Axis bilinear(std::int64_t input, std::int64_t result) {
  Axis made;
  made.input = input;
  for (std::int64_t i = 0; i < result; ++i) {
    const float at = static_cast<float>(i * (input - 1)) / static_cast<float>(result - 1);
    const auto first = static_cast<std::int32_t>(at);
    made.first.push_back(first);
    made.second.push_back(first + (first < input - 1 ? 1 : 0));
    made.first_weight.push_back(1 - (at - static_cast<float>(first)));
    made.second_weight.push_back(at - static_cast<float>(first));
  }
  return made;
}

Axis nearest(std::int64_t input, std::int64_t result) {
  Axis made;
  made.input = input;
  for (std::int64_t i = 0; i < result; ++i) {
    made.first.push_back(static_cast<std::int32_t>(i * input / result));
    made.first_weight.push_back(1);
  }
  return made;
}

/// The weight of an input's element in a result's.
double weight(const Axis& axis, std::int64_t result, std::int64_t input) {
  double all = axis.first[result] == input ? axis.first_weight[result] : 0;
  if (!axis.second.empty() && axis.second[result] == input) all += axis.second_weight[result];
  return all;
}

struct Plane {
  Axis rows, columns;

  [[nodiscard]] double pixel(const std::vector<float>& from, std::int64_t y, std::int64_t x) const {
    double sum = 0;
    for (std::int64_t i = 0; i < rows.input; ++i) {
      for (std::int64_t j = 0; j < columns.input; ++j) {
        sum += weight(rows, y, i) * weight(columns, x, j) * from[i * columns.input + j];
      }
    }
    return sum;
  }
  [[nodiscard]] double gradient(const std::vector<float>& grad, std::int64_t i,
                                std::int64_t j) const {
    double sum = 0;
    for (std::int64_t y = 0; y < rows.result(); ++y) {
      for (std::int64_t x = 0; x < columns.result(); ++x) {
        sum += weight(rows, y, i) * weight(columns, x, j) * grad[y * columns.result() + x];
      }
    }
    return sum;
  }
  void expect_gradient() const {
    const auto grad = numbers(rows.result() * columns.result(), 2);
    const GradientAxes axes{rows, columns.input, columns.result(), shares_of(columns)};
    std::vector<float> room(static_cast<std::size_t>(room_of_planes(columns.result())), 5);
    std::vector<float> to(static_cast<std::size_t>(rows.input * columns.input));
    resample_plane_gradient(axes, grad.data(), room.data(), to.data());
    for (std::int64_t i = 0; i < rows.input; ++i) {
      for (std::int64_t j = 0; j < columns.input; ++j) {
        EXPECT_NEAR(to[i * columns.input + j], gradient(grad, i, j), kAllowed) << i << ", " << j;
      }
    }
  }
};

TEST(ResamplePlanesTest, Bilinear) {
  for (const Plane& plane :
       {Plane{bilinear(5, 12), bilinear(7, 33)}, Plane{bilinear(12, 5), bilinear(33, 7)}}) {
    const auto from = numbers(plane.rows.input * plane.columns.input, 1);
    std::vector<float> room(static_cast<std::size_t>(room_of_planes(plane.columns.result())));
    std::vector<float> to(static_cast<std::size_t>(plane.rows.result() * plane.columns.result()));
    resample_plane(plane.rows, plane.columns, from.data(), room.data(), to.data());
    for (std::int64_t y = 0; y < plane.rows.result(); ++y) {
      for (std::int64_t x = 0; x < plane.columns.result(); ++x) {
        EXPECT_NEAR(to[y * plane.columns.result() + x], plane.pixel(from, y, x), kAllowed);
      }
    }
    plane.expect_gradient();
  }
}

TEST(ResamplePlanesTest, Nearest) {
  for (const Plane& plane :
       {Plane{nearest(5, 12), nearest(7, 33)}, Plane{nearest(12, 5), nearest(33, 7)}}) {
    const auto from = numbers(plane.rows.input * plane.columns.input, 3);
    std::vector<float> to(static_cast<std::size_t>(plane.rows.result() * plane.columns.result()));
    take_nearest(plane.rows, plane.columns, from.data(), to.data());
    for (std::int64_t y = 0; y < plane.rows.result(); ++y) {
      for (std::int64_t x = 0; x < plane.columns.result(); ++x) {
        EXPECT_EQ(to[y * plane.columns.result() + x], plane.pixel(from, y, x));
      }
    }
    plane.expect_gradient();
  }
}

}  // namespace
}  // namespace loom::kernels::pool_resample
