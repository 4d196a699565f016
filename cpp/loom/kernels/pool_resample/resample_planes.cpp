// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/resample_planes.h"

#include "loom/kernels/pool_resample/resample_rows.h"
#include "loom/kernels/row_pitch.h"

#include <algorithm>

namespace loom::kernels::pool_resample {
namespace {

void mix(const Axis& axis, const float* from, float* to) {
  mix_elements({axis.first.data(), axis.first_weight.data()},
               {axis.second.data(), axis.second_weight.data()}, from, axis.result(), to);
}

/// Two rows of the input that are in use, as long as the result's.
class MixedRows {
 public:
  MixedRows(const Axis& columns, const float* plane, float* room)
      : columns_(columns), plane_(plane), room_(room) {}

  const float* get(std::int64_t row) {
    float* const to = room_ + row % 2 * row_pitch(columns_.result());
    if (held_[row % 2] != row) mix(columns_, plane_ + row * columns_.input, to);
    held_[row % 2] = row;
    return to;
  }

 private:
  const Axis& columns_;
  const float* plane_;
  float* room_;
  std::int64_t held_[2] = {-1, -1};
};

// Behind the last element of `from` is a 0.
void gather(const Shares& shares, const float* from, std::int64_t count, float* to) {
  sum_shares({shares.place.data(), shares.weight.data()}, shares.most, from, count, to);
}

}  // namespace

std::int64_t room_of_planes(std::int64_t columns) noexcept { return 2 * row_pitch(columns); }

Shares shares_of(const Axis& axis) {
  const auto inputs = static_cast<std::size_t>(axis.input);
  std::vector<std::size_t> count(inputs);
  for (const std::int32_t input : axis.first) ++count[static_cast<std::size_t>(input)];
  for (const std::int32_t input : axis.second) ++count[static_cast<std::size_t>(input)];
  const std::size_t most = *std::max_element(count.begin(), count.end());
  Shares made{static_cast<std::int64_t>(most),
              std::vector(most * inputs, static_cast<std::int32_t>(axis.result())),
              std::vector<float>(most * inputs)};
  std::fill(count.begin(), count.end(), 0);
  for (std::size_t i = 0; i < axis.first.size(); ++i) {
    const auto add = [&](std::int32_t input, float weight) {
      const auto to = static_cast<std::size_t>(input);
      const std::size_t at = count[to]++ * inputs + to;
      made.place[at] = static_cast<std::int32_t>(i);
      made.weight[at] = weight;
    };
    add(axis.first[i], axis.first_weight[i]);
    if (!axis.second.empty()) add(axis.second[i], axis.second_weight[i]);
  }
  return made;
}

void resample_plane(const Axis& rows, const Axis& columns, const float* from, float* room,
                    float* to) noexcept {
  MixedRows mixed(columns, from, room);
  for (std::size_t y = 0; y < rows.first.size(); ++y, to += columns.result()) {
    const float* const first = mixed.get(rows.first[y]);
    const float* const second = mixed.get(rows.second[y]);
    mix_rows(first, rows.first_weight[y], second, rows.second_weight[y], columns.result(), to);
  }
}

void take_nearest(const Axis& rows, const Axis& columns, const float* from, float* to) noexcept {
  for (std::size_t y = 0; y < rows.first.size(); ++y, to += columns.result()) {
    if (y > 0 && rows.first[y] == rows.first[y - 1]) {
      std::copy_n(to - columns.result(), columns.result(), to);
    } else {
      take_elements(columns.first.data(), from + rows.first[y] * columns.input, columns.result(),
                    to);
    }
  }
}

void resample_plane_gradient(const GradientAxes& axes, const float* grad, float* room,
                             float* to) noexcept {
  const Axis& rows = axes.rows;
  const std::int64_t length = axes.length;
  const auto sums_of = [&](std::int64_t row) { return room + row % 2 * row_pitch(length); };
  const auto finish = [&](std::int64_t row) {
    gather(axes.shares, sums_of(row), axes.columns, to + row * axes.columns);
    std::fill_n(sums_of(row), length, 0.F);
  };
  std::fill_n(room, 2 * row_pitch(length), 0.F);
  std::int64_t row = 0;  // what is before it is complete
  for (std::size_t y = 0; y < rows.first.size(); ++y, grad += length) {
    for (; row < rows.first[y]; ++row) finish(row);
    add_row(grad, rows.first_weight[y], length, sums_of(rows.first[y]));
    if (rows.second.empty()) continue;
    add_row(grad, rows.second_weight[y], length, sums_of(rows.second[y]));
  }
  for (; row < rows.input; ++row) finish(row);
}

}  // namespace loom::kernels::pool_resample
