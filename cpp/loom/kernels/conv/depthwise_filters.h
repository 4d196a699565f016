// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Filters of depthwise convolutions in the orders in which their kernels want the weights: those of
// a channel lie together in memory, tap after tap. T: float or simd::BFloat16. Thread: any; only
// what is passed is touched.

#include "loom/simd/half.h"

#include <cstdint>

namespace loom::kernels::conv {

/// to[tap * step + c] = filters[c * taps + tap]; with the taps in the opposite order if `flipped`.
/// Inline, since small planes are done sooner than a step that the compiler does not know allows.
template <class T>
[[gnu::always_inline]] inline void filters_by_taps(const T* filters, std::int64_t channels,
                                                   std::int64_t taps, bool flipped, float* to,
                                                   std::int64_t step) {
  const std::int64_t first = flipped ? (taps - 1) * step : 0, next = flipped ? -step : step;
  for (std::int64_t c = 0; c < channels; ++c) {
    float* const place = to + first + c;
    for (std::int64_t tap = 0; tap < taps; ++tap) place[tap * next] = simd::widen(*filters++);
  }
}

/// The other way: to[c * taps + tap] = by_taps[tap * channels + c].
template <class T>
void filters_by_channels(const float* by_taps, std::int64_t channels, std::int64_t taps, T* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      simd::round_to(to[c * taps + tap], by_taps[tap * channels + c]);
    }
  }
}

/// Taps of one direction: first, first + stride, ...
struct EveryTap {
  std::int64_t count, first, stride;
};

/// Those of a filter that has kernel_x taps in a row, turned by half a circle.
template <class T>
void flipped_taps(const T* filter, std::int64_t kernel_x, const EveryTap& y, const EveryTap& x,
                  float* to) {
  for (std::int64_t i = y.count; i-- > 0;) {
    const T* const row = filter + (y.first + i * y.stride) * kernel_x + x.first;
    for (std::int64_t j = x.count; j-- > 0;) *to++ = simd::widen(row[j * x.stride]);
  }
}

}  // namespace loom::kernels::conv
