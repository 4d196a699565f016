// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/resample.h"

#include "loom/kernels/pool_resample/resample_rows.h"
#include "loom/ops/launch.h"
#include "loom/ops/rows/row_scratch.h"

#include <ATen/native/UpSample.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace loom::ops {
namespace {

using kernels::pool_resample::add_row;
using kernels::pool_resample::mix_elements;
using kernels::pool_resample::mix_rows;
using kernels::pool_resample::sum_shares;
using kernels::pool_resample::take_elements;

// Of one element of the larger plane, where an addition of a large vector costs 1.
constexpr double kElementCost = 2;
constexpr double kGradientCost = 4;

/// What each element of a result is made of, along one dimension: one or two of the input's.
struct Axis {
  std::int64_t input = 0;
  std::vector<std::int32_t> first, second;  ///< their places, in rising order; no second if nearest
  std::vector<float> first_weight, second_weight;

  [[nodiscard]] std::int64_t result() const noexcept {
    return static_cast<std::int64_t>(first.size());
  }
};

Axis axis(std::int64_t input, std::int64_t result, bool align_corners,
          std::optional<double> scale) {
  Axis made;
  made.input = input;
  const auto ratio =
      at::native::area_pixel_compute_scale<float>(input, result, align_corners, scale);
  for (std::int64_t i = 0; i < result; ++i) {
    std::int64_t first = 0, second = 0;
    float first_weight = 0, second_weight = 0;
    at::native::compute_source_index_and_lambda(first, second, first_weight, second_weight, ratio,
                                                i, input, result, align_corners);
    made.first.push_back(static_cast<std::int32_t>(first));
    made.second.push_back(static_cast<std::int32_t>(second));
    made.first_weight.push_back(first_weight);
    made.second_weight.push_back(second_weight);
  }
  return made;
}

Axis nearest_axis(std::int64_t input, std::int64_t result, bool exact,
                  std::optional<double> scale) {
  Axis made;
  made.input = input;
  const auto index = exact ? at::native::nearest_exact_idx : at::native::nearest_idx;
  for (std::int64_t i = 0; i < result; ++i) {
    made.first.push_back(static_cast<std::int32_t>(index(i, input, result, scale)));
    made.first_weight.push_back(1);
  }
  return made;
}

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

void resample(const Axis& rows, const Axis& columns, const float* from, float* to) {
  MixedRows mixed(columns, from, row_scratch(columns.result(), 2));
  for (std::size_t y = 0; y < rows.first.size(); ++y, to += columns.result()) {
    const float* const first = mixed.get(rows.first[y]);
    const float* const second = mixed.get(rows.second[y]);
    mix_rows(first, rows.first_weight[y], second, rows.second_weight[y], columns.result(), to);
  }
}

void take_nearest(const Axis& rows, const Axis& columns, const float* from, float* to) {
  for (std::size_t y = 0; y < rows.first.size(); ++y, to += columns.result()) {
    if (y > 0 && rows.first[y] == rows.first[y - 1]) {
      std::copy_n(to - columns.result(), columns.result(), to);
    } else {
      take_elements(columns.first.data(), from + rows.first[y] * columns.input, columns.result(),
                    to);
    }
  }
}

/// Of each element of the input, along one dimension, the results that it is part of: `most` or
/// fewer, the others being one behind the last.
struct Shares {
  std::int64_t most = 0;
  std::vector<std::int32_t> place;
  std::vector<float> weight;
};

Shares shares(const Axis& axis) {
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

// Behind the last element of `from` is a 0.
void gather(const Shares& shares, const float* from, std::int64_t count, float* to) {
  sum_shares({shares.place.data(), shares.weight.data()}, shares.most, from, count, to);
}

/// The way back along the columns is by shares.
struct GradientAxes {
  Axis rows;
  std::int64_t columns, length;  ///< of the input and of the result
  Shares shares;
};

void resample_gradient(const GradientAxes& axes, const float* grad, float* to) {
  const Axis& rows = axes.rows;
  const std::int64_t length = axes.length;
  float* const room = row_scratch(length, 2);
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

// Samples may be parts of larger ones: the gradient of a concatenation has such.
bool takes(const at::Tensor& result, const at::Tensor& input) {
  for (const at::Tensor* tensor : {&result, &input}) {
    if (tensor->scalar_type() != at::kFloat || tensor->dim() != 4 || tensor->is_neg() ||
        tensor->_is_zerotensor() || tensor->numel() == 0 || tensor->size(-1) > kMaxRowColumns ||
        tensor->size(-2) >= std::numeric_limits<std::int32_t>::max()) {
      return false;
    }
  }
  return result.is_contiguous() && input.select(0, 0).is_contiguous();
}

/// Calls plane(from, to) for each of them. `cost` is that of an element of the larger plane.
template <class Plane>
void launch_planes(const char* name, const at::Tensor& result, const at::Tensor& input, double cost,
                   Plane plane) {
  const auto elements = [](const at::Tensor& tensor) { return tensor.size(2) * tensor.size(3); };
  const std::int64_t to_plane = elements(result), from_plane = elements(input);
  const std::int64_t planes = result.size(0) * result.size(1);
  const std::int64_t block =
      block_length(planes, cost * static_cast<double>(std::max(to_plane, from_plane)));
  const auto run = [=](Grid& grid, const TensorRef& to_ref, const TensorRef& from_ref,
                       const Plane& each) {
    const std::int64_t channels = to_ref.sizes()[1], sample = from_ref.strides()[0];
    const auto* const from = reinterpret_cast<const float*>(from_ref.data());
    auto* const to = reinterpret_cast<float*>(to_ref.data());
    grid.run_by_any((planes + block - 1) / block, [&](std::int64_t index) {
      for (std::int64_t p = index * block; p < std::min(planes, (index + 1) * block); ++p) {
        each(from + p / channels * sample + p % channels * from_plane, to + p * to_plane);
      }
    });
  };
  launch(name, Custom{}, run, out(result), input, std::move(plane));
}

void launch_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad, Axis rows,
                     const Axis& columns) {
  GradientAxes axes{std::move(rows), columns.input, columns.result(), shares(columns)};
  launch_planes(name, result, grad, kGradientCost,
                [axes = std::move(axes)](const float* from, float* to) {
                  resample_gradient(axes, from, to);
                });
}

}  // namespace

bool launch_bilinear(const char* name, const at::Tensor& result, const at::Tensor& input,
                     const Resampling& how) {
  if (!takes(result, input)) return false;
  Axis rows = axis(input.size(2), result.size(2), how.align_corners, how.scale_y);
  Axis columns = axis(input.size(3), result.size(3), how.align_corners, how.scale_x);
  launch_planes(name, result, input, kElementCost,
                [rows = std::move(rows), columns = std::move(columns)](
                    const float* from, float* to) { resample(rows, columns, from, to); });
  return true;
}

bool launch_bilinear_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad,
                              const Resampling& how) {
  if (!takes(result, grad)) return false;
  launch_gradient(name, result, grad,
                  axis(result.size(2), grad.size(2), how.align_corners, how.scale_y),
                  axis(result.size(3), grad.size(3), how.align_corners, how.scale_x));
  return true;
}

bool launch_nearest(const char* name, const at::Tensor& result, const at::Tensor& input, bool exact,
                    std::optional<double> scale_y, std::optional<double> scale_x) {
  if (!takes(result, input)) return false;
  Axis rows = nearest_axis(input.size(2), result.size(2), exact, scale_y);
  Axis columns = nearest_axis(input.size(3), result.size(3), exact, scale_x);
  launch_planes(name, result, input, 1.0,
                [rows = std::move(rows), columns = std::move(columns)](
                    const float* from, float* to) { take_nearest(rows, columns, from, to); });
  return true;
}

bool launch_nearest_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad,
                             bool exact, std::optional<double> scale_y,
                             std::optional<double> scale_x) {
  if (!takes(result, grad)) return false;
  launch_gradient(name, result, grad, nearest_axis(result.size(2), grad.size(2), exact, scale_y),
                  nearest_axis(result.size(3), grad.size(3), exact, scale_x));
  return true;
}

}  // namespace loom::ops
