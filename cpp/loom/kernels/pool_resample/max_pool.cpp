// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/max_pool.h"

namespace loom::kernels::pool_resample::LOOM_SIMD {
namespace {

// Maxima are elements, NaNs with their bits: what rounding would do is not wanted.
[[gnu::always_inline]] inline void put_maximum(float& to, float maximum) { to = maximum; }
[[gnu::always_inline]] inline void put_maximum(simd::BFloat16& to, float maximum) {
  to.bits = static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, maximum) >> 16);
}

/// Where the windows of a side begin inside the input.
[[gnu::always_inline]] inline std::int64_t first_inside(const PoolWindow::Side& side,
                                                        std::int64_t to) {
  std::int64_t from = to * side.stride - side.padding;
  while (from < 0) from += side.dilation;
  return from;
}

/// The i-th element is at `place` + i * stride.
[[gnu::always_inline]] inline void take_larger(const float* __restrict from, std::int32_t place,
                                               std::int32_t stride, std::int64_t count,
                                               float* __restrict best,
                                               std::int32_t* __restrict places) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = from[i];
    const bool larger = value > best[i] || value != value;
    best[i] = larger ? value : best[i];
    places[i] = larger ? place + static_cast<std::int32_t>(i) * stride : places[i];
  }
}

/// A line of the input between as many -inf as windows reach beyond it: those are never taken. What
/// is one stride apart lies together: element i is at i % stride * pitch + i / stride.
template <class T>
[[gnu::always_inline]] inline void pad_line(const T* line, const PoolWindow::Side& side,
                                            float* to) {
  const std::int64_t end = side.padding + side.from;
  for (std::int64_t phase = 0; phase < side.stride; ++phase, to += side.pitch) {
    std::int64_t i = 0, at = phase;
    for (; at < side.padding; at += side.stride) to[i++] = -__builtin_inff();
    for (; at < end; at += side.stride) to[i++] = simd::widen(line[at - side.padding]);
    while (i < side.pitch) to[i++] = -__builtin_inff();
  }
}

}  // namespace

template <class T>
void max_pool(const PoolWindow& window, T* to, std::int64_t* to_places, const T* from,
              float* scratch) noexcept {
  const PoolWindow::Side &rows = window.rows, &columns = window.columns;
  float* const line = scratch;
  float* const best = line + columns.stride * columns.pitch;
  auto* const places = reinterpret_cast<std::int32_t*>(best + columns.to);
  for (std::int64_t row = 0; row < rows.to; ++row) {
    const std::int64_t first = first_inside(rows, row);
    for (std::int64_t i = 0; i < columns.to; ++i) {
      best[i] = -__builtin_inff();
      places[i] = static_cast<std::int32_t>(first * columns.from + first_inside(columns, i));
    }
    const std::int64_t end = row * rows.stride - rows.padding + rows.kernel * rows.dilation;
    for (std::int64_t y = first; y < end && y < rows.from; y += rows.dilation) {
      pad_line(from + y * columns.from, columns, line);
      for (std::int64_t k = 0; k < columns.kernel; ++k) {
        const std::int64_t x = k * columns.dilation;
        const auto place = static_cast<std::int32_t>(y * columns.from + x - columns.padding);
        take_larger(line + x % columns.stride * columns.pitch + x / columns.stride, place,
                    static_cast<std::int32_t>(columns.stride), columns.to, best, places);
      }
    }
    for (std::int64_t i = 0; i < columns.to; ++i) {
      put_maximum(to[row * columns.to + i], best[i]);
      to_places[row * columns.to + i] = places[i];
    }
  }
}

template void max_pool(const PoolWindow&, float*, std::int64_t*, const float*, float*) noexcept;
template void max_pool(const PoolWindow&, simd::BFloat16*, std::int64_t*, const simd::BFloat16*,
                       float*) noexcept;

}  // namespace loom::kernels::pool_resample::LOOM_SIMD
