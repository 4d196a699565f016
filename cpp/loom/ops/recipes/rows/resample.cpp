// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/resample.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/pool_resample/resample_planes.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <ATen/native/UpSample.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace loom::ops {
namespace {

using kernels::pool_resample::Axis;
using kernels::pool_resample::GradientAxes;
using kernels::pool_resample::room_of_planes;

// Of one element of the larger plane, where an addition of a large vector costs 1.
constexpr double kElementCost = 2;
constexpr double kGradientCost = 4;

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

bool takes(const at::Tensor& result, const at::Tensor& input) {
  for (const at::Tensor* tensor : {&result, &input}) {
    if (tensor->scalar_type() != at::kFloat || tensor->dim() != 4 || tensor->is_neg() ||
        tensor->_is_zerotensor() || tensor->numel() == 0 || tensor->size(-1) > kMaxRowColumns ||
        tensor->size(-2) >= std::numeric_limits<std::int32_t>::max()) {
      return false;
    }
  }
  return result.is_contiguous();
}

/// Planes without gaps. Samples may be parts of larger ones: the gradient of a concatenation has
/// such. Pixels of channels, whose result is planes nevertheless, are copied into that order.
at::Tensor in_planes(const at::Tensor& input) {
  return input.select(0, 0).is_contiguous() ? input : input.contiguous();
}

/// Calls plane(from, to) for each of them. `cost` is that of an element of the larger plane.
template <class Plane>
void launch_planes(const char* name, const at::Tensor& result, const at::Tensor& given, double cost,
                   Plane plane) {
  const at::Tensor input = in_planes(given);
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
    grid.run_by_any(ceil_div(planes, block), [&](std::int64_t index) {
      for (std::int64_t p = index * block; p < std::min(planes, (index + 1) * block); ++p) {
        each(from + p / channels * sample + p % channels * from_plane, to + p * to_plane);
      }
    });
  };
  launch(name, Custom{}, run, out(result), input, std::move(plane));
}

void launch_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad, Axis rows,
                     const Axis& columns) {
  GradientAxes axes{std::move(rows), columns.input, columns.result(),
                    kernels::pool_resample::shares_of(columns)};
  launch_planes(name, result, grad, kGradientCost,
                [axes = std::move(axes)](const float* from, float* to) {
                  float* const room = row_scratch(room_of_planes(axes.length), 1);
                  resample_plane_gradient(axes, from, room, to);
                });
}

}  // namespace

bool launch_bilinear(const char* name, const at::Tensor& result, const at::Tensor& input,
                     const Resampling& how) {
  if (!takes(result, input)) return false;
  Axis rows = axis(input.size(2), result.size(2), how.align_corners, how.scale_y);
  Axis columns = axis(input.size(3), result.size(3), how.align_corners, how.scale_x);
  launch_planes(
      name, result, input, kElementCost,
      [rows = std::move(rows), columns = std::move(columns)](const float* from, float* to) {
        float* const room = row_scratch(room_of_planes(columns.result()), 1);
        resample_plane(rows, columns, from, room, to);
      });
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
