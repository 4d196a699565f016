// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/pooling.h"

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"
#include "loom/kernels/pool_resample/plane_groups.h"
#include "loom/ops/launch/launch.h"

#include <algorithm>
#include <limits>
#include <memory>

namespace loom::ops {
namespace {

using kernels::pool_resample::WideOf;
using kernels::pool_resample::WindowAxis;
using kernels::pool_resample::Windows;

const Scratch kRoom;

// Of one element of a window, where an addition of a large vector costs 1: of averages, and of
// maxima with their places.
constexpr double kAverageCost = 0.5, kLargestCost = 1.5;
// Channels beside each other are cut where there are fewer rows, into parts of whole cache lines
// that cost as much.
constexpr std::int64_t kEnoughRows = 16, kPartChannels = 64;
constexpr double kPartCost = 16384;
// Longer rows do not stay in a core's cache.
constexpr std::int64_t kLongestRoom = 1 << 17;

/// body.operator()<T>() for the element type of kernels.
template <class Body>
void with_element(c10::ScalarType dtype, Body&& body) {
  switch (dtype) {
    case c10::kFloat:
      return body.template operator()<float>();
    case c10::kDouble:
      return body.template operator()<double>();
    case c10::kBFloat16:
      return body.template operator()<simd::BFloat16>();
    default:
      return body.template operator()<simd::Half>();
  }
}

/// How a tensor's samples lie in memory.
enum class Layout { kPlanes, kLast, kOther };

c10::MemoryFormat last_format(std::int64_t dims) {
  return dims == 2 ? c10::MemoryFormat::ChannelsLast : c10::MemoryFormat::ChannelsLast3d;
}

Layout layout_of(const at::Tensor& tensor, std::int64_t dims) {
  if (tensor.is_contiguous()) return Layout::kPlanes;
  const bool batched = tensor.dim() == dims + 2;
  return batched && tensor.is_contiguous(last_format(dims)) ? Layout::kLast : Layout::kOther;
}

bool is_known(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kBFloat16 ||
         dtype == c10::kHalf;
}

c10::MemoryFormat format_of(Layout layout, std::int64_t dims) {
  return layout == Layout::kLast ? last_format(dims) : c10::MemoryFormat::Contiguous;
}

/// The layout that the result has, of those that are for these kernels. A tensor that lies
/// otherwise is `copied` there, if the result's layout is known to be cpu's whatever its input's
/// is.
Layout layout_for(const at::Tensor& result, const at::Tensor& from, std::int64_t dims,
                  bool copied) {
  if (!is_known(result.scalar_type()) || result.scalar_type() != from.scalar_type() ||
      result.numel() == 0 || from.numel() == 0 || result.dim() != from.dim() || result.is_neg() ||
      from.is_neg()) {
    return Layout::kOther;
  }
  Layout layout = layout_of(result, dims);
  // A tensor of one channel, or of one place, may be said to have either layout.
  if (layout == Layout::kPlanes && layout_of(from, dims) == Layout::kLast &&
      result.is_contiguous(last_format(dims))) {
    layout = Layout::kLast;
  }
  const bool fits =
      layout != Layout::kOther && (copied || from.is_contiguous(format_of(layout, dims)));
  return fits ? layout : Layout::kOther;
}

/// The windows of a call: axis(i) is that of the i-th of the pooled dimensions.
template <class Axis>
Windows windows_of(const at::Tensor& input, std::int64_t dims, Layout layout, Axis axis) {
  Windows made;
  // Of two dimensions, the depth is one element that every window sees.
  made.depth = dims == 3 ? axis(0) : WindowAxis::regular(1, 1, 1, 1, 0, 1, true);
  made.rows = axis(dims - 2);
  made.columns = axis(dims - 1);
  made.last = layout == Layout::kLast;
  if (made.last) made.channels = input.size(1);
  return made;
}

Windows windows_of(const at::Tensor& input, const at::Tensor& result, const Pooling& pooling,
                   Layout layout) {
  const auto number = [](c10::IntArrayRef list, std::int64_t index) {
    return list.size() == 1 ? list[0] : list[static_cast<std::size_t>(index)];
  };
  Windows made = windows_of(input, pooling.dims, layout, [&](std::int64_t i) {
    const std::int64_t dim = input.dim() - pooling.dims + i, kernel = number(pooling.kernel, i);
    return WindowAxis::regular(
        input.size(dim), result.size(dim), kernel,
        pooling.stride.empty() ? kernel : number(pooling.stride, i), number(pooling.padding, i),
        pooling.dilation.empty() ? 1 : number(pooling.dilation, i), pooling.counts_padding);
  });
  if (pooling.divisor) made.divisor = static_cast<double>(*pooling.divisor);
  return made;
}

Windows adaptive_windows(const at::Tensor& input, const at::Tensor& result, std::int64_t dims,
                         Layout layout) {
  return windows_of(input, dims, layout, [&](std::int64_t i) {
    const std::int64_t dim = input.dim() - dims + i;
    return WindowAxis::adaptive(input.size(dim), result.size(dim));
  });
}

bool fits(const Windows& windows) {
  return windows.room() <= kLongestRoom &&
         windows.input_rows() * windows.columns.from < std::numeric_limits<std::int32_t>::max();
}

/// Elements of a window on average, of all its dimensions.
double window_elements(const Windows& windows) {
  double elements = 1;
  for (const WindowAxis* axis : {&windows.depth, &windows.rows, &windows.columns}) {
    double all = 0;
    for (std::size_t i = 0; i < axis->begin.size(); ++i) {
      all += std::max(1, (axis->end[i] - axis->begin[i]) / static_cast<int>(axis->dilation));
    }
    elements *= all / static_cast<double>(axis->to);
  }
  return elements;
}

/// Calls body(sample, row, room) for the rows [0, rows) of all samples, some to a block.
template <class T, class Body>
void for_rows(Grid& grid, std::int64_t samples, std::int64_t rows, double cost,
              const Windows& windows, Body body) {
  const std::int64_t all = samples * rows, block = block_length(all, cost);
  grid.run_by_any(ceil_div(all, block), [&](std::int64_t index) {
    auto* const room = kRoom.get<WideOf<T>>(windows.room());
    for (std::int64_t i = index * block; i < std::min(all, (index + 1) * block); ++i) {
      body(i / rows, i % rows, room);
    }
  });
}

/// Calls body(windows of turned planes, the first of them, room) for groups of `planes` planes;
/// false, and nothing is called, where rows by themselves are better. A plane's cost is given.
template <class T, class Body>
bool for_plane_groups(Grid& grid, std::int64_t planes, double cost, const Windows& windows,
                      Body body) {
  const std::int64_t each = kernels::pool_resample::planes_at_a_time(windows, planes, sizeof(T));
  if (each == 0) return false;
  const Windows group = kernels::pool_resample::of_turned(windows, each);
  const Windows rest = kernels::pool_resample::of_turned(windows, planes % each);
  const std::int64_t groups = ceil_div(planes, each);
  const std::int64_t block = block_length(groups, cost * static_cast<double>(each));
  const std::int64_t bytes = kernels::pool_resample::bytes_of_room(group, sizeof(T));
  grid.run_by_any(ceil_div(groups, block), [&](std::int64_t index) {
    auto* const room = kRoom.get<std::byte>(bytes);
    for (std::int64_t i = index * block; i < std::min(groups, (index + 1) * block); ++i) {
      body((i + 1) * each > planes ? rest : group, i * each, room);
    }
  });
  return true;
}

/// How many parts channels beside each other are cut into, if there are few rows.
std::int64_t channel_parts(const Windows& windows, std::int64_t rows, double cost) {
  if (rows >= kEnoughRows) return 1;
  const auto worth = static_cast<std::int64_t>(cost / kPartCost);
  return std::clamp<std::int64_t>(worth, 1, ceil_div(windows.channels, kPartChannels));
}

void average_kernel(Grid& grid, const TensorRef& result, const TensorRef& input,
                    const std::shared_ptr<const Windows>& shared, double cost) {
  const Windows& w = *shared;
  const std::int64_t sample = w.result_rows() * w.result_row();
  const std::int64_t rows = w.result_rows(), samples = result.numel() / sample;
  const std::int64_t parts = channel_parts(w, samples * rows, cost);
  const std::int64_t length = round_up(ceil_div(w.channels, parts), kPartChannels);
  with_element(input.dtype(), [&]<class T>() {
    const auto* const from = reinterpret_cast<const T*>(input.data());
    auto* const to = reinterpret_cast<T*>(result.data());
    if (for_plane_groups<T>(grid, samples, cost * static_cast<double>(rows), w,
                            [&](const Windows& turned, std::int64_t first, std::byte* room) {
                              average_planes(turned, from + first * w.input_rows() * w.input_row(),
                                             room, to + first * sample);
                            })) {
      return;
    }
    for_rows<T>(grid, samples, rows * parts, cost / static_cast<double>(parts), w,
                [&](std::int64_t index, std::int64_t part, WideOf<T>* room) {
                  const std::int64_t row = part / parts, first = part % parts * length;
                  if (first >= w.channels) return;
                  average_row(w, row, {first, std::min(length, w.channels - first)},
                              from + index * w.input_rows() * w.input_row(), room,
                              to + index * sample + row * w.result_row());
                });
  });
}

void average_gradient_kernel(Grid& grid, const TensorRef& result, const TensorRef& grad,
                             const std::shared_ptr<const Windows>& shared, double cost) {
  const Windows& w = *shared;
  const std::int64_t sample = w.input_rows() * w.input_row(), samples = result.numel() / sample;
  with_element(grad.dtype(), [&]<class T>() {
    const auto* const from = reinterpret_cast<const T*>(grad.data());
    auto* const to = reinterpret_cast<T*>(result.data());
    if (for_plane_groups<T>(grid, samples, cost * static_cast<double>(w.input_rows()), w,
                            [&](const Windows& turned, std::int64_t first, std::byte* room) {
                              average_gradient_planes(
                                  turned, from + first * w.result_rows() * w.result_row(), room,
                                  to + first * sample);
                            })) {
      return;
    }
    for_rows<T>(grid, samples, w.input_rows(), cost, w,
                [&](std::int64_t index, std::int64_t row, WideOf<T>* room) {
                  average_gradient_row(w, row, from + index * w.result_rows() * w.result_row(),
                                       room, to + index * sample + row * w.input_row());
                });
  });
}

void largest_kernel(Grid& grid, const TensorRef& result, const TensorRef& indices,
                    const TensorRef& input, const std::shared_ptr<const Windows>& shared,
                    double cost) {
  const Windows& w = *shared;
  const std::int64_t sample = w.result_rows() * w.result_row(), samples = result.numel() / sample;
  with_element(input.dtype(), [&]<class T>() {
    const auto* const from = reinterpret_cast<const T*>(input.data());
    auto* const to = reinterpret_cast<T*>(result.data());
    auto* const places =
        indices.defined() ? reinterpret_cast<std::int64_t*>(indices.data()) : nullptr;
    if (for_plane_groups<T>(grid, samples, cost * static_cast<double>(w.result_rows()), w,
                            [&](const Windows& turned, std::int64_t first, std::byte* room) {
                              largest_planes(turned, from + first * w.input_rows() * w.input_row(),
                                             room, to + first * sample,
                                             places == nullptr ? nullptr : places + first * sample);
                            })) {
      return;
    }
    for_rows<T>(grid, samples, w.result_rows(), cost, w,
                [&](std::int64_t index, std::int64_t row, WideOf<T>* room) {
                  const std::int64_t at = index * sample + row * w.result_row();
                  largest_row(w, row, from + index * w.input_rows() * w.input_row(), room, to + at,
                              places == nullptr ? nullptr : places + at);
                });
  });
}

bool launch_average(const char* name, const at::Tensor& result, const at::Tensor& input,
                    Windows windows) {
  if (!fits(windows)) return false;
  const double cost =
      kAverageCost * window_elements(windows) * static_cast<double>(windows.result_row());
  launch(name, Custom{}, average_kernel, out(result), input,
         std::make_shared<const Windows>(std::move(windows)), cost);
  return true;
}

bool launch_average_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad,
                             Windows windows) {
  if (!fits(windows)) return false;
  const double shared = static_cast<double>(windows.result_rows() * windows.columns.to) /
                        static_cast<double>(windows.input_rows() * windows.columns.from);
  const double cost = kAverageCost * (1 + window_elements(windows) * shared) *
                      static_cast<double>(windows.input_row());
  launch(name, Custom{}, average_gradient_kernel, out(result), grad,
         std::make_shared<const Windows>(std::move(windows)), cost);
  return true;
}

}  // namespace

bool launch_average(const char* name, const at::Tensor& result, const at::Tensor& input,
                    const Pooling& pooling) {
  const Layout layout = layout_for(result, input, pooling.dims, true);
  if (layout == Layout::kOther) return false;
  return launch_average(name, result, input.contiguous(format_of(layout, pooling.dims)),
                        windows_of(input, result, pooling, layout));
}

bool launch_average_gradient(const char* name, const at::Tensor& result, const at::Tensor& grad,
                             const Pooling& pooling) {
  const Layout layout = layout_for(result, grad, pooling.dims, true);
  if (layout == Layout::kOther) return false;
  return launch_average_gradient(name, result, grad.contiguous(format_of(layout, pooling.dims)),
                                 windows_of(result, grad, pooling, layout));
}

bool launch_largest(const char* name, const at::Tensor& result, const at::Tensor& indices,
                    const at::Tensor& input, const Pooling& pooling) {
  const Layout layout = layout_for(result, input, pooling.dims, false);
  if (layout == Layout::kOther) return false;
  if (indices.defined() && indices.strides() != result.strides()) return false;
  Windows windows = windows_of(input, result, pooling, layout);
  if (!fits(windows)) return false;
  const double cost =
      kLargestCost * window_elements(windows) * static_cast<double>(windows.result_row());
  launch(name, Custom{}, largest_kernel, out(result), out(indices), input,
         std::make_shared<const Windows>(std::move(windows)), cost);
  return true;
}

bool launch_adaptive_average(const char* name, const at::Tensor& result, const at::Tensor& input,
                             std::int64_t dims) {
  const Layout layout = layout_for(result, input, dims, false);
  if (layout == Layout::kOther) return false;
  return launch_average(name, result, input, adaptive_windows(input, result, dims, layout));
}

bool launch_adaptive_average_gradient(const char* name, const at::Tensor& result,
                                      const at::Tensor& grad, std::int64_t dims) {
  const Layout layout = layout_for(result, grad, dims, false);
  if (layout == Layout::kOther) return false;
  return launch_average_gradient(name, result, grad, adaptive_windows(result, grad, dims, layout));
}

}  // namespace loom::ops
