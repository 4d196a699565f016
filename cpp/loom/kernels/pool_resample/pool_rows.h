// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows of elements that windows of a pooling are made of: added up or compared, first with rows
// that lie beside each other in other dimensions, then along the row. T: float, double,
// simd::BFloat16, simd::Half. Thread: any; only what is passed is touched, and no two overlap.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>
#include <type_traits>

namespace loom::kernels::pool_resample {

/// What elements are added up and compared in.
template <class T>
using WideOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Windows along a row, all alike: the one of result i begins at i * stride.
struct RowWindows {
  std::int64_t results, kernel, stride, dilation;
};
/// Elements [begin[i], end[i]) for each result i.
struct RowSpans {
  std::int64_t results;
  const std::int32_t *begin, *end;
};

/// Some elements of each pixel, and from one pixel to the next.
struct PixelChannels {
  std::int64_t count, step;
};

LOOM_SIMD_DECLARE(
    template <class T>
    void average_pixels(const T* const* lines, std::int64_t count, const RowSpans& spans,
                        const WideOf<T>* divisors, const PixelChannels& channels, T* to) noexcept;
    template <class T> void add_elements(const T* from, WideOf<T> divisor, std::int64_t count,
                                         bool first, WideOf<T>* to) noexcept;
    template <class T> void divide_elements(const WideOf<T>* from, WideOf<T> divisor,
                                            std::int64_t count, T* to) noexcept;
    template <class T>
    void average_windows(const WideOf<T>* row, const RowWindows& windows, WideOf<T> divisor,
                         const WideOf<T>* divisors, WideOf<T>* room, T* to) noexcept;
    template <class T>
    void average_spans(const WideOf<T>* row, const RowSpans& spans, WideOf<T> divisor,
                       const WideOf<T>* divisors, T* to) noexcept;
    template <class T>
    void spread_windows(const WideOf<T>* row, const RowWindows& windows, std::int64_t skipped,
                        std::int64_t count, WideOf<T>* room, T* to) noexcept;
    template <class T> void sum_spans(const WideOf<T>* row, const RowSpans& spans, T* to) noexcept;
    template <class T> void take_larger(const T* from, std::int32_t place, std::int64_t count,
                                        bool first, WideOf<T>* best, std::int32_t* places) noexcept;
    template <class T> void largest_of_windows(const WideOf<T>* row, const std::int32_t* bases,
                                               const RowWindows& windows, std::int64_t skipped,
                                               WideOf<T>* best, std::int32_t* places) noexcept;
    template <class T>
    void put_largest(const WideOf<T>* best, const std::int32_t* places, std::int64_t count, T* to,
                     std::int64_t* to_places) noexcept;)

/// Pixel i of `to` = the sum of the pixels of a span in all lines / divisors[i].
template <class T>
inline constexpr simd::Versions average_pixels{LOOM_SIMD_LIST(average_pixels<T>)};
/// to[i] = from[i] / divisor, or with that added to it.
template <class T>
inline constexpr simd::Versions add_elements{LOOM_SIMD_LIST(add_elements<T>)};
/// to[i] = from[i] / divisor.
template <class T>
inline constexpr simd::Versions divide_elements{LOOM_SIMD_LIST(divide_elements<T>)};
/// to[i] = the sum of a window of the row / (divisor * divisors[i]). Room: a number for each.
template <class T>
inline constexpr simd::Versions average_windows{LOOM_SIMD_LIST(average_windows<T>)};
/// The same of spans.
template <class T>
inline constexpr simd::Versions average_spans{LOOM_SIMD_LIST(average_spans<T>)};
/// The way back: to[i] = the sum of what row has for each window that element i + skipped is in.
/// Before the row there are as many zeros as a window has elements, behind it up to
/// row_to_spread(). Room: room_to_spread() numbers.
template <class T>
inline constexpr simd::Versions spread_windows{LOOM_SIMD_LIST(spread_windows<T>)};
/// to[i] = the sum of a span of the row.
template <class T>
inline constexpr simd::Versions sum_spans{LOOM_SIMD_LIST(sum_spans<T>)};

/// best[i] = the larger of it and from[i], whose place is kept if `places` is not null; a NaN is
/// larger than all. The first row of a window is always taken.
template <class T>
inline constexpr simd::Versions take_larger{LOOM_SIMD_LIST(take_larger<T>)};
/// The largest of each window of the row, and its place: bases[j] + j - skipped. Of equal ones it
/// is the least place, of several NaNs the greatest. No places if `bases` is null.
template <class T>
inline constexpr simd::Versions largest_of_windows{LOOM_SIMD_LIST(largest_of_windows<T>)};
/// As elements, and places as 64 bits if they are not null.
template <class T>
inline constexpr simd::Versions put_largest{LOOM_SIMD_LIST(put_largest<T>)};

/// Numbers that spread_windows() reads from its row on, and those of its room.
[[nodiscard]] constexpr std::int64_t row_to_spread(std::int64_t stride, std::int64_t skipped,
                                                   std::int64_t count) noexcept {
  return (skipped + count - 1) / stride + 1;
}
[[nodiscard]] constexpr std::int64_t room_to_spread(std::int64_t stride, std::int64_t skipped,
                                                    std::int64_t count) noexcept {
  return stride * row_to_spread(stride, skipped, count);
}

}  // namespace loom::kernels::pool_resample
