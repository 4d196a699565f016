// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/resample_planes.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/transpose_tile.h"
#include "loom/simd/half.h"

#include <algorithm>

namespace loom::kernels::pool_resample {
namespace {

// Longer rows are as fast by themselves.
constexpr std::int64_t kShortRow = 16;
// Two cache lines of float, and planes of which so many stay in a core's cache.
constexpr std::int64_t kPlanes = 32, kLargestPlane = 1024;

/// What lies in the room, each part at a multiple of a cache line.
struct Parts {
  std::int64_t input, result;  ///< elements of all planes
  std::int64_t from, to, end;  ///< bytes before each
};
Parts parts_of(const Resampler& turned, std::size_t item_bytes) {
  const auto size = static_cast<std::int64_t>(item_bytes);
  Parts parts{};
  parts.input = turned.input_rows() * turned.input_row();
  parts.result = turned.result_rows() * turned.result_row();
  parts.from = round_up(turned.room() * static_cast<std::int64_t>(sizeof(float)), 64);
  parts.to = parts.from + round_up(parts.input * size, 64);
  parts.end = parts.to + round_up(parts.result * size, 64);
  return parts;
}

}  // namespace

std::int64_t planes_at_a_time(const Taps& depth, const Taps& rows, const Taps& columns) noexcept {
  const std::int64_t input = depth.from * rows.from * columns.from;
  const std::int64_t result = depth.to() * rows.to() * columns.to();
  const bool small =
      std::max(columns.from, columns.to()) <= kShortRow && std::max(input, result) <= kLargestPlane;
  return small ? kPlanes : 0;
}

std::int64_t bytes_of_room(const Resampler& turned, std::size_t item_bytes) noexcept {
  return parts_of(turned, item_bytes).end;
}

template <class T>
void resample_planes(const Resampler& turned, const T* from, std::byte* room, T* to) noexcept {
  const Parts parts = parts_of(turned, sizeof(T));
  const std::int64_t planes = turned.channels();
  T* const input = reinterpret_cast<T*>(room + parts.from);
  T* const result = reinterpret_cast<T*>(room + parts.to);
  turn_matrix(from, parts.input / planes, planes, parts.input / planes, input, planes);
  turned.run(0, turned.result_rows(), input, reinterpret_cast<float*>(room), result);
  turn_matrix(result, planes, parts.result / planes, planes, to, parts.result / planes);
}

#define LOOM_INSTANTIATE(T) \
  template void resample_planes(const Resampler&, const T*, std::byte*, T*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::pool_resample
