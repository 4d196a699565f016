// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/plane_groups.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/transpose_tile.h"

#include <algorithm>

namespace loom::kernels::pool_resample {
namespace {

// Longer rows, of the input, are as fast by themselves: two cache lines.
constexpr std::int64_t kShortRowBytes = 128;
// Two cache lines of float; fewer where there would be few groups to share among cores.
constexpr std::int64_t kMostPlanes = 32, kLeastPlanes = 8, kEnoughGroups = 16;
// Larger groups do not stay in a core's cache.
constexpr std::int64_t kLargestPlane = 4096;

std::int64_t input_elements(const Windows& w) { return w.input_rows() * w.columns.from; }
std::int64_t result_elements(const Windows& w) { return w.result_rows() * w.columns.to; }

/// What lies in the room, each part at a multiple of a cache line.
struct Parts {
  std::int64_t from, to, places, end;  ///< bytes before each
};
Parts parts_of(const Windows& turned, std::size_t item_bytes) {
  const auto size = static_cast<std::int64_t>(item_bytes);
  const auto wide = static_cast<std::int64_t>(std::max(item_bytes, sizeof(float)));
  const std::int64_t input = input_elements(turned) * turned.channels;
  const std::int64_t result = result_elements(turned) * turned.channels;
  Parts parts{};
  parts.from = round_up(turned.room() * wide, 64);
  parts.to = parts.from + round_up(input * size, 64);
  parts.places = parts.to + round_up(result * size, 64);
  parts.end = parts.places + round_up(result * 8, 64);
  return parts;
}

template <class T>
T* part(std::byte* room, std::int64_t bytes) {
  return reinterpret_cast<T*>(room + bytes);
}

}  // namespace

std::int64_t planes_at_a_time(const Windows& windows, std::int64_t planes,
                              std::size_t item_bytes) noexcept {
  if (windows.last ||
      windows.columns.from * static_cast<std::int64_t>(item_bytes) > kShortRowBytes ||
      std::max(input_elements(windows), result_elements(windows)) > kLargestPlane) {
    return 0;
  }
  const std::int64_t each = planes / kEnoughGroups / kLeastPlanes * kLeastPlanes;
  return std::clamp(each, kLeastPlanes, kMostPlanes);
}

Windows of_turned(const Windows& windows, std::int64_t count) {
  Windows turned = windows;
  turned.last = true;
  turned.channels = count;
  return turned;
}

std::int64_t bytes_of_room(const Windows& turned, std::size_t item_bytes) noexcept {
  return parts_of(turned, item_bytes).end;
}

template <class T>
void average_planes(const Windows& turned, const T* from, std::byte* room, T* to) noexcept {
  const Parts parts = parts_of(turned, sizeof(T));
  const std::int64_t planes = turned.channels;
  T* const input = part<T>(room, parts.from);
  T* const result = part<T>(room, parts.to);
  turn_matrix(from, input_elements(turned), planes, input_elements(turned), input, planes);
  for (std::int64_t row = 0; row < turned.result_rows(); ++row) {
    average_row(turned, row, {0, planes}, input, part<WideOf<T>>(room, 0),
                result + row * turned.result_row());
  }
  turn_matrix(result, planes, result_elements(turned), planes, to, result_elements(turned));
}

template <class T>
void average_gradient_planes(const Windows& turned, const T* grad, std::byte* room,
                             T* to) noexcept {
  const Parts parts = parts_of(turned, sizeof(T));
  const std::int64_t planes = turned.channels;
  T* const result = part<T>(room, parts.from);
  T* const turned_grad = part<T>(room, parts.to);
  turn_matrix(grad, result_elements(turned), planes, result_elements(turned), turned_grad, planes);
  for (std::int64_t row = 0; row < turned.input_rows(); ++row) {
    average_gradient_row(turned, row, turned_grad, part<WideOf<T>>(room, 0),
                         result + row * turned.input_row());
  }
  turn_matrix(result, planes, input_elements(turned), planes, to, input_elements(turned));
}

template <class T>
void largest_planes(const Windows& turned, const T* from, std::byte* room, T* to,
                    std::int64_t* places) noexcept {
  const Parts parts = parts_of(turned, sizeof(T));
  const std::int64_t planes = turned.channels, results = result_elements(turned);
  T* const input = part<T>(room, parts.from);
  T* const result = part<T>(room, parts.to);
  auto* const turned_places = places == nullptr ? nullptr : part<std::int64_t>(room, parts.places);
  turn_matrix(from, input_elements(turned), planes, input_elements(turned), input, planes);
  for (std::int64_t row = 0; row < turned.result_rows(); ++row) {
    const std::int64_t at = row * turned.result_row();
    largest_row(turned, row, input, part<WideOf<T>>(room, 0), result + at,
                turned_places == nullptr ? nullptr : turned_places + at);
  }
  turn_matrix(result, planes, results, planes, to, results);
  if (places != nullptr) turn_matrix(turned_places, planes, results, planes, places, results);
}

#define LOOM_INSTANTIATE(T)                                                                 \
  template void average_planes(const Windows&, const T*, std::byte*, T*) noexcept;          \
  template void average_gradient_planes(const Windows&, const T*, std::byte*, T*) noexcept; \
  template void largest_planes(const Windows&, const T*, std::byte*, T*, std::int64_t*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(double)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::pool_resample
