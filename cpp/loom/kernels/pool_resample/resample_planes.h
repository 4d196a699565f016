// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Planes of float32 pixels made from others, bilinear or nearest, and the way back: along the rows
// first, each row of the input once; then rows are mixed. Thread: any, each with a room of its own.

#include <cstdint>
#include <vector>

namespace loom::kernels::pool_resample {

/// What each element of a result is made of, along one dimension: one or two of the input's.
struct Axis {
  std::int64_t input = 0;
  std::vector<std::int32_t> first, second;  ///< their places, in rising order; no second if nearest
  std::vector<float> first_weight, second_weight;

  [[nodiscard]] std::int64_t result() const noexcept {
    return static_cast<std::int64_t>(first.size());
  }
};

/// Of each element of the input, along one dimension, the results that it is part of: `most` or
/// fewer, the others being one behind the last.
struct Shares {
  std::int64_t most = 0;
  std::vector<std::int32_t> place;
  std::vector<float> weight;
};
[[nodiscard]] Shares shares_of(const Axis& axis);

/// The way back along the columns is by shares.
struct GradientAxes {
  Axis rows;
  std::int64_t columns, length;  ///< of the input and of the result
  Shares shares;
};

/// Floats of room for rows of so many columns of the result.
[[nodiscard]] std::int64_t room_of_planes(std::int64_t columns) noexcept;

void resample_plane(const Axis& rows, const Axis& columns, const float* from, float* room,
                    float* to) noexcept;
/// Of axes without a second.
void take_nearest(const Axis& rows, const Axis& columns, const float* from, float* to) noexcept;
void resample_plane_gradient(const GradientAxes& axes, const float* grad, float* room,
                             float* to) noexcept;

}  // namespace loom::kernels::pool_resample
