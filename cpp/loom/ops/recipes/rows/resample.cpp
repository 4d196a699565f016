// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/resample.h"

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"
#include "loom/kernels/pool_resample/resample.h"
#include "loom/kernels/pool_resample/resample_planes.h"
#include "loom/ops/launch/launch.h"
#include "loom/simd/half.h"

#include <ATen/native/UpSample.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace loom::ops {
namespace {

using kernels::pool_resample::bytes_of_room;
using kernels::pool_resample::planes_at_a_time;
using kernels::pool_resample::resample_planes;
using kernels::pool_resample::Resampler;
using kernels::pool_resample::Taps;

const Scratch kRoom;

// Of one element of the larger side for a tap of a row, where an addition of a large vector
// costs 1.
constexpr double kTapCost = 1;
// Longer rows do not stay in a core's cache.
constexpr std::int64_t kLongestRow = 1 << 16;

void add_cubic(Taps& taps, double ratio, std::int64_t index, const Resampling& how) {
  const auto at = at::native::area_pixel_compute_source_index<float>(
      static_cast<float>(ratio), index, how.align_corners, true);
  std::int64_t floor = 0;
  float distance = 0;
  at::native::guard_index_and_lambda(at, taps.from, floor, distance);
  float weights[4];
  at::native::get_cubic_upsample_coefficients<float>(weights, distance);
  for (std::int64_t i = 0; i < 4; ++i) {
    taps.add(static_cast<std::int32_t>(std::clamp<std::int64_t>(floor - 1 + i, 0, taps.from - 1)),
             weights[i]);
  }
}

/// Which formula of ATen's positions of nearest elements have. The two differ where a scale is
/// given and both sizes are equal all the same, or one is twice the other.
enum class Nearest { kByScale, kBySize };

/// That of ATen's kernel: gradients, many channels that lie last, and small images go by sizes
/// (aten/src/ATen/native/cpu/UpSampleKernel.cpp, _use_vectorized_kernel_cond_2d() and _3d()).
Nearest nearest_of(const at::Tensor& result, const at::Tensor& input, bool gradient) {
  const auto has_many_last = [&](c10::MemoryFormat last) {
    return input.size(1) > 3 && input.is_contiguous(last);
  };
  bool by_size = gradient;
  if (input.dim() == 4) {
    constexpr std::int64_t kSmall = 128;
    by_size |=
        has_many_last(c10::MemoryFormat::ChannelsLast) || result.size(2) + result.size(3) <= kSmall;
  } else if (input.dim() == 5) {
    by_size |= has_many_last(c10::MemoryFormat::ChannelsLast3d);
  }
  return by_size ? Nearest::kBySize : Nearest::kByScale;
}

std::int64_t nearest_index(std::int64_t index, std::int64_t input, std::int64_t result,
                           std::optional<double> scale, Nearest nearest) {
  if (nearest == Nearest::kBySize) return at::native::nearest_idx(index, input, result, scale);
  return at::native::nearest_neighbor_compute_source_index(
      at::native::compute_scales_value<float>(scale, input, result), index, input);
}

Taps taps_of(std::int64_t input, std::int64_t result, const Resampling& how,
             std::optional<double> scale, Nearest nearest) {
  Taps made;
  made.from = input;
  const auto ratio =
      at::native::area_pixel_compute_scale<float>(input, result, how.align_corners, scale);
  for (std::int64_t i = 0; i < result; ++i) {
    switch (how.mode) {
      case ResampleMode::kNearest:
        made.add(static_cast<std::int32_t>(nearest_index(i, input, result, scale, nearest)), 1);
        break;
      case ResampleMode::kNearestExact:
        made.add(static_cast<std::int32_t>(at::native::nearest_exact_idx(i, input, result, scale)),
                 1);
        break;
      case ResampleMode::kLinear: {
        std::int64_t first = 0, second = 0;
        float first_weight = 0, second_weight = 0;
        at::native::compute_source_index_and_lambda(first, second, first_weight, second_weight,
                                                    ratio, i, input, result, how.align_corners);
        made.add(static_cast<std::int32_t>(first), first_weight);
        made.add(static_cast<std::int32_t>(second), second_weight);
        break;
      }
      case ResampleMode::kCubic:
        add_cubic(made, ratio, i, how);
        break;
    }
    made.finish_element();
  }
  return made;
}

std::int64_t spatial_dims(const at::Tensor& tensor) { return tensor.dim() - 2; }

bool is_element(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kBFloat16 || dtype == c10::kHalf;
}

bool takes(const at::Tensor& result, const at::Tensor& input) {
  for (const at::Tensor* tensor : {&result, &input}) {
    if (!is_element(tensor->scalar_type()) || tensor->is_neg() || tensor->_is_zerotensor() ||
        tensor->numel() == 0 || tensor->size(-1) > kLongestRow ||
        tensor->numel() / tensor->size(0) / tensor->size(1) >=
            std::numeric_limits<std::int32_t>::max()) {
      return false;
    }
  }
  return result.scalar_type() == input.scalar_type();
}

/// The order in which the result lies, if it is one of these kernels'.
std::optional<c10::MemoryFormat> format_of(const at::Tensor& result) {
  if (result.is_contiguous()) return c10::MemoryFormat::Contiguous;
  if (result.dim() == 3) return {};
  const auto last =
      result.dim() == 4 ? c10::MemoryFormat::ChannelsLast : c10::MemoryFormat::ChannelsLast3d;
  if (result.is_contiguous(last)) return last;
  return {};
}

/// Without gaps within samples, which may be parts of larger ones: the gradient of a concatenation
/// has such.
at::Tensor in_order(const at::Tensor& input, c10::MemoryFormat format) {
  const at::Tensor sample = input.narrow(0, 0, 1);
  return sample.is_contiguous(format) ? input : input.contiguous(format);
}

/// body.operator()<T>() for the element type of kernels.
template <class Body>
void with_element(c10::ScalarType dtype, Body&& body) {
  if (dtype == c10::kFloat) return body.template operator()<float>();
  if (dtype == c10::kBFloat16) return body.template operator()<simd::BFloat16>();
  body.template operator()<simd::Half>();
}

void resample_kernel(Grid& grid, const TensorRef& result, const TensorRef& input,
                     const std::shared_ptr<const Resampler>& shared, std::int64_t planes,
                     double row_cost) {
  const Resampler& resampler = *shared;
  const std::int64_t rows = resampler.result_rows(), all = planes * rows;
  const std::int64_t block = block_length(all, row_cost);
  const std::int64_t of_sample = planes / result.sizes()[0], sample = input.strides()[0];
  const std::int64_t from_plane = resampler.input_rows() * resampler.input_row();
  const std::int64_t to_plane = rows * resampler.result_row();
  with_element(result.dtype(), [&]<class T>() {
    const auto* const from = reinterpret_cast<const T*>(input.data());
    auto* const to = reinterpret_cast<T*>(result.data());
    grid.run_by_any(ceil_div(all, block), [&](std::int64_t index) {
      float* const room = kRoom.get<float>(resampler.room());
      const std::int64_t end = std::min(all, (index + 1) * block);
      for (std::int64_t at = index * block; at < end;) {
        const std::int64_t plane = at / rows, first = at % rows;
        const std::int64_t last = std::min(rows, first + end - at);
        resampler.run<T>(first, last,
                         from + plane / of_sample * sample + plane % of_sample * from_plane, room,
                         to + plane * to_plane);
        at += last - first;
      }
    });
  });
}

/// Planes with short rows: so many at a time, and what is left over.
struct PlaneGroups {
  Resampler many, rest;
};

void resample_groups(Grid& grid, const TensorRef& result, const TensorRef& input,
                     const std::shared_ptr<const PlaneGroups>& shared, std::int64_t planes,
                     double row_cost) {
  const Resampler& many = shared->many;
  const std::int64_t each = many.channels();
  const double cost = row_cost * static_cast<double>(many.result_rows() * each);
  const std::int64_t all = ceil_div(planes, each), block = block_length(all, cost);
  const std::int64_t from_plane = input.numel() / planes, to_plane = result.numel() / planes;
  with_element(result.dtype(), [&]<class T>() {
    const auto* const from = reinterpret_cast<const T*>(input.data());
    auto* const to = reinterpret_cast<T*>(result.data());
    grid.run_by_any(ceil_div(all, block), [&](std::int64_t index) {
      std::byte* const room = kRoom.get<std::byte>(bytes_of_room(many, sizeof(T)));
      const std::int64_t end = std::min(all, (index + 1) * block);
      for (std::int64_t group = index * block; group < end; ++group) {
        const std::int64_t plane = group * each;
        const Resampler& turned = plane + each <= planes ? many : shared->rest;
        resample_planes<T>(turned, from + plane * from_plane, room, to + plane * to_plane);
      }
    });
  });
}

bool queue_resampling(const char* name, const at::Tensor& result, const at::Tensor& input,
                      const Resampling& how, bool gradient) {
  if (!takes(result, input)) return false;
  const auto format = format_of(result);
  if (!format) return false;
  const bool last = *format != c10::MemoryFormat::Contiguous;
  const std::int64_t dims = spatial_dims(result);
  const Nearest nearest = nearest_of(result, input, gradient);
  const auto taps = [&](std::int64_t from_the_last) {
    const std::int64_t d = dims - 1 - from_the_last;
    if (d < 0) return Taps::single();
    const std::optional<double> scale = how.scales[static_cast<std::size_t>(d)];
    if (!gradient) return taps_of(input.size(d + 2), result.size(d + 2), how, scale, nearest);
    return transposed(taps_of(result.size(d + 2), input.size(d + 2), how, scale, nearest));
  };
  Taps depth = taps(2), rows = taps(1), columns = taps(0);
  // Of a row of the result: what it is mixed from, and what its elements are.
  const double mixed = static_cast<double>(depth.most() * rows.most() * columns.from);
  const double gathered = static_cast<double>(columns.most() * columns.to());
  const std::int64_t channels = last ? result.size(1) : 1;
  const std::int64_t planes = result.size(0) * result.size(1) / channels;
  const double cost = kTapCost * (mixed + gathered) * static_cast<double>(channels);
  if (const std::int64_t each = last ? 0 : planes_at_a_time(depth, rows, columns); each > 0) {
    auto groups = std::make_shared<const PlaneGroups>(
        PlaneGroups{Resampler(depth, rows, columns, each, /*last=*/true),
                    Resampler(depth, rows, columns, planes % each, /*last=*/true)});
    if (!groups->many.fits()) return false;
    launch(name, Custom{}, resample_groups, out(result), input.contiguous(),
           std::shared_ptr<const PlaneGroups>(std::move(groups)), planes, cost);
    return true;
  }
  auto resampler = std::make_shared<const Resampler>(std::move(depth), std::move(rows),
                                                     std::move(columns), channels, last);
  if (!resampler->fits()) return false;
  launch(name, Custom{}, resample_kernel, out(result), in_order(input, *format),
         std::shared_ptr<const Resampler>(std::move(resampler)), planes, cost);
  return true;
}

}  // namespace

bool launch_resampling(const char* name, const at::Tensor& result, const at::Tensor& input,
                       const Resampling& resampling) {
  return queue_resampling(name, result, input, resampling, false);
}

bool launch_resampling_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad,
                                const Resampling& resampling) {
  return queue_resampling(name, result, grad, resampling, true);
}

}  // namespace loom::ops
