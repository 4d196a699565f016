// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/resample.h"

#include "loom/ops/launch.h"
#include "loom/ops/random/isa_clones.h"
#include "loom/ops/rows/row_scratch.h"

#include <ATen/native/UpSample.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace loom::ops {
namespace {

// Of one element of the larger plane, where an addition of a large vector costs 1.
constexpr double kElementCost = 2;
constexpr double kGradientCost = 4;

/// What each element of a result is made of, along one dimension: one or two of the input's.
struct Axis {
  std::int64_t input = 0;
  std::vector<std::int32_t> first, second;  ///< their places, in rising order
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
  }
  return made;
}

LOOM_ISA_CLONES void take_elements(const Axis& axis, const float* from, float* to) {
  const std::int32_t* first = axis.first.data();
  const std::int64_t count = axis.result();
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[first[i]];
}

LOOM_ISA_CLONES void mix_elements(const Axis& axis, const float* from, float* to) {
  const std::int32_t *first = axis.first.data(), *second = axis.second.data();
  const float *one = axis.first_weight.data(), *two = axis.second_weight.data();
  const std::int64_t count = axis.result();
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = from[first[i]] * one[i] + from[second[i]] * two[i];
  }
}

LOOM_ISA_CLONES void mix_rows(const float* a, float a_weight, const float* b, float b_weight,
                              std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] * a_weight + b[i] * b_weight;
}

LOOM_ISA_CLONES void add_row(const float* from, float weight, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i] * weight;
}

/// Two rows of the input that are in use, as long as the result's.
class MixedRows {
 public:
  MixedRows(const Axis& columns, const float* plane, float* room)
      : columns_(columns), plane_(plane), room_(room) {}

  const float* get(std::int64_t row) {
    float* const to = room_ + row % 2 * row_pitch(columns_.result());
    if (held_[row % 2] != row) mix_elements(columns_, plane_ + row * columns_.input, to);
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
      take_elements(columns, from + rows.first[y] * columns.input, to);
    }
  }
}

// A row of sums over rows of the gradient: each of its elements goes to two of the result's row.
void scatter(const Axis& columns, const float* from, float* to) {
  std::fill_n(to, columns.input, 0.F);
  for (std::size_t x = 0; x < columns.first.size(); ++x) {
    to[columns.first[x]] += from[x] * columns.first_weight[x];
    to[columns.second[x]] += from[x] * columns.second_weight[x];
  }
}

void resample_gradient(const Axis& rows, const Axis& columns, const float* grad, float* to) {
  const std::int64_t length = columns.result();
  float* const room = row_scratch(length, 2);
  const auto sums_of = [&](std::int64_t row) { return room + row % 2 * row_pitch(length); };
  const auto finish = [&](std::int64_t row) {
    scatter(columns, sums_of(row), to + row * columns.input);
    std::fill_n(sums_of(row), length, 0.F);
  };
  std::fill_n(room, 2 * row_pitch(length), 0.F);
  std::int64_t row = 0;  // what is before it is complete
  for (std::size_t y = 0; y < rows.first.size(); ++y, grad += length) {
    for (; row < rows.first[y]; ++row) finish(row);
    add_row(grad, rows.first_weight[y], length, sums_of(rows.first[y]));
    add_row(grad, rows.second_weight[y], length, sums_of(rows.second[y]));
  }
  for (; row < rows.input; ++row) finish(row);
}

bool takes(const at::Tensor& result, const at::Tensor& input) {
  const auto fits = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.dim() == 4 && tensor.is_contiguous() &&
           !tensor.is_neg() && tensor.numel() > 0 && tensor.size(-1) <= kMaxRowColumns &&
           tensor.size(-2) < std::numeric_limits<std::int32_t>::max();
  };
  return fits(result) && fits(input);
}

template <auto kPlane>
void launch_planes(const char* name, const at::Tensor& result, const at::Tensor& input, Axis rows,
                   Axis columns, double element_cost) {
  const auto kernel = [](const at::Tensor& to, const at::Tensor& from, const Axis& y_axis,
                         const Axis& x_axis) {
    const std::int64_t to_plane = to.size(1) * to.size(2), from_plane = from.size(1) * from.size(2);
    for (std::int64_t plane = 0; plane < to.size(0); ++plane) {
      kPlane(y_axis, x_axis, from.const_data_ptr<float>() + plane * from_plane,
             to.mutable_data_ptr<float>() + plane * to_plane);
    }
  };
  const std::int64_t elements =
      std::max(rows.result(), rows.input) * std::max(columns.result(), columns.input);
  const double cost = element_cost * static_cast<double>(elements);
  launch(name, Rows{.leading = 2, .cut = 3, .cost = cost}, kernel, out(result), input,
         std::move(rows), std::move(columns));
}

// The axes from the plane of the operator's input to that of its result.
template <auto kPlane>
void launch_mixed(const char* name, const at::Tensor& result, const at::Tensor& input,
                  const at::Tensor& small, const at::Tensor& large, const Resampling& how,
                  double element_cost) {
  launch_planes<kPlane>(
      name, result, input, axis(small.size(-2), large.size(-2), how.align_corners, how.scale_y),
      axis(small.size(-1), large.size(-1), how.align_corners, how.scale_x), element_cost);
}

}  // namespace

bool launch_bilinear(const char* name, const at::Tensor& result, const at::Tensor& input,
                     const Resampling& resampling) {
  if (!takes(result, input)) return false;
  launch_mixed<resample>(name, result, input, input, result, resampling, kElementCost);
  return true;
}

bool launch_bilinear_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad,
                              const Resampling& resampling) {
  if (!takes(result, grad)) return false;
  launch_mixed<resample_gradient>(name, result, grad, result, grad, resampling, kGradientCost);
  return true;
}

bool launch_nearest(const char* name, const at::Tensor& result, const at::Tensor& input, bool exact,
                    std::optional<double> scale_y, std::optional<double> scale_x) {
  if (!takes(result, input)) return false;
  launch_planes<take_nearest>(name, result, input,
                              nearest_axis(input.size(-2), result.size(-2), exact, scale_y),
                              nearest_axis(input.size(-1), result.size(-1), exact, scale_x), 1.0);
  return true;
}

}  // namespace loom::ops
