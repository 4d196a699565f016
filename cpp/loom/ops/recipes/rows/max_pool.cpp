// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/max_pool.h"

#include "loom/kernels/pool_resample/max_pool.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <limits>

namespace loom::ops {
namespace {

using kernels::pool_resample::max_pool;
using kernels::pool_resample::PoolWindow;

// Of one element of the window, where an addition of a large vector costs 1.
constexpr double kElementCost = 1.5;
// Of shorter rows of results ATen's loop over elements takes half as long: setting up a row costs
// more than its few elements, which do not fill a vector of 8.
constexpr std::int64_t kShortestRow = 8;

PoolWindow::Side side(std::size_t index, const at::Tensor& result, const at::Tensor& input,
                      at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                      at::IntArrayRef dilation) {
  const auto of = [&](at::IntArrayRef list) { return list.size() == 1 ? list[0] : list[index]; };
  const auto dim = static_cast<std::int64_t>(index) - 2;
  PoolWindow::Side made{.from = input.size(dim),
                        .to = result.size(dim),
                        .kernel = of(kernel),
                        .stride = stride.empty() ? of(kernel) : of(stride),
                        .padding = of(padding),
                        .dilation = of(dilation),
                        .pitch = 0};
  made.pitch = made.pitch_of();
  return made;
}

template <class T>
void pool_planes(const at::Tensor& to, const at::Tensor& places, const at::Tensor& from,
                 const PoolWindow& window) {
  float* const scratch = row_scratch(window.scratch(), 1);
  auto* values = static_cast<T*>(to.mutable_data_ptr());
  auto* place = places.mutable_data_ptr<std::int64_t>();
  const T* in = row_elements<T>(from);
  const std::int64_t made = window.rows.to * window.columns.to;
  for (std::int64_t plane = 0; plane < from.size(0); ++plane) {
    max_pool<T>(window, values, place, in, scratch);
    values += made;
    place += made;
    in += window.rows.from * window.columns.from;
  }
}

}  // namespace

bool launch_max_pool(const char* name, const at::Tensor& result, const at::Tensor& indices,
                     const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation) {
  const bool takes = is_row_element(input.scalar_type()) && result.numel() > 0 &&
                     result.scalar_type() == input.scalar_type() && input.is_contiguous() &&
                     result.is_contiguous() && indices.is_contiguous() &&
                     result.size(-1) >= kShortestRow &&
                     input.size(-1) * input.size(-2) < std::numeric_limits<std::int32_t>::max();
  if (!takes) return false;
  const auto window_side = [&](std::size_t index) {
    return side(index, result, input, kernel, stride, padding, dilation);
  };
  const PoolWindow window{window_side(0), window_side(1)};
  if (window.scratch() > kMaxRowColumns) return false;
  const auto run = [](const at::Tensor& to, const at::Tensor& places, const at::Tensor& from,
                      const PoolWindow& of) {
    with_row_element(from.scalar_type(), [&]<class T>() { pool_planes<T>(to, places, from, of); });
  };
  const double cost = kElementCost * static_cast<double>(window.rows.to * window.columns.to) *
                      static_cast<double>(window.rows.kernel * window.columns.kernel);
  const Rows planes{.leading = static_cast<std::int8_t>(input.dim() - 2),
                    .cut = 7,
                    .cost = cost,
                    .by = RunBy::kAny};
  launch(name, planes, run, out(result), out(indices), input, window);
  return true;
}

}  // namespace loom::ops
