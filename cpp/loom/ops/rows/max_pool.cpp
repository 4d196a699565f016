// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/max_pool.h"

#include "loom/ops/launch.h"
#include "loom/ops/rows/row_scratch.h"

#include <algorithm>
#include <limits>

namespace loom::ops {
namespace {

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
  const std::int64_t windows = (made.to - 1) * made.stride + (made.kernel - 1) * made.dilation + 1;
  const std::int64_t line = made.padding + made.from;
  made.pitch = (std::max(windows, line) + made.stride - 1) / made.stride;
  return made;
}

}  // namespace

bool launch_max_pool(const char* name, const at::Tensor& result, const at::Tensor& indices,
                     const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation) {
  const bool takes = row_element(input.scalar_type()) && result.numel() > 0 &&
                     result.scalar_type() == input.scalar_type() && input.is_contiguous() &&
                     result.is_contiguous() && indices.is_contiguous() &&
                     result.size(-1) >= kShortestRow &&
                     input.size(-1) * input.size(-2) < std::numeric_limits<std::int32_t>::max();
  if (!takes) return false;
  const auto window_side = [&](std::size_t index) {
    return side(index, result, input, kernel, stride, padding, dilation);
  };
  const PoolWindow window{window_side(0), window_side(1)};
  const std::int64_t scratch = 2 * window.columns.to + window.columns.stride * window.columns.pitch;
  if (scratch > kMaxRowColumns) return false;
  const auto run = [](const at::Tensor& to, const at::Tensor& places, const at::Tensor& from,
                      const PoolWindow& of) {
    const auto max_pool = row_kernels(*row_element(from.scalar_type())).max_pool;
    const PoolWindow::Side& columns = of.columns;
    float* const scratch = row_scratch(2 * columns.to + columns.stride * columns.pitch, 1);
    auto* values = static_cast<std::byte*>(to.mutable_data_ptr());
    auto* place = places.mutable_data_ptr<std::int64_t>();
    const auto* in = static_cast<const std::byte*>(from.const_data_ptr());
    const std::int64_t made = of.rows.to * of.columns.to;
    for (std::int64_t plane = 0; plane < from.size(0); ++plane) {
      max_pool(of, values, place, in, scratch);
      values += static_cast<std::size_t>(made) * from.itemsize();
      place += made;
      in += static_cast<std::size_t>(of.rows.from * of.columns.from) * from.itemsize();
    }
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
