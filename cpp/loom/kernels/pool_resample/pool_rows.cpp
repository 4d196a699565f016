// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/pool_rows.h"

#include "loom/simd/floats.h"

#include <cstddef>
#include <type_traits>
#include <utility>

// Loops that compilers make vectors of: strides that are known are shuffles.
namespace loom::kernels::pool_resample::LOOM_SIMD {
namespace {

using namespace simd::LOOM_SIMD;

#define LOOM_STRIDES(stride, ...)                                    \
  switch (stride) {                                                  \
    case 1:                                                          \
      return __VA_ARGS__(std::integral_constant<std::int64_t, 1>{}); \
    case 2:                                                          \
      return __VA_ARGS__(std::integral_constant<std::int64_t, 2>{}); \
    case 3:                                                          \
      return __VA_ARGS__(std::integral_constant<std::int64_t, 3>{}); \
    case 4:                                                          \
      return __VA_ARGS__(std::integral_constant<std::int64_t, 4>{}); \
    default:                                                         \
      return __VA_ARGS__(stride);                                    \
  }

// Maxima are elements, NaNs with their bits: what rounding would do is not wanted.
[[gnu::always_inline]] inline void put(float& to, float value) { to = value; }
[[gnu::always_inline]] inline void put(double& to, double value) { to = value; }
[[gnu::always_inline]] inline void put(simd::Half& to, float value) { simd::round_to(to, value); }
[[gnu::always_inline]] inline void put(simd::BFloat16& to, float value) {
  to.bits = static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, value) >> 16);
}

}  // namespace

namespace {

// As many vectors of sums as leave room in the registers.
constexpr std::size_t kMostSums = kLanes >= 16 ? 16 : 8;

// Sums of some channels stay in registers while a window's pixels go by.
template <std::size_t... kVector, class T>
[[gnu::always_inline]] inline void average_strip(std::index_sequence<kVector...>,
                                                 const T* const* lines, std::int64_t count,
                                                 std::int64_t begin, std::int64_t end,
                                                 std::int64_t step, float divisor, T* to) {
  Floats sums[] = {((void)kVector, Floats{})...};
  for (std::int64_t line = 0; line < count; ++line) {
    const T* const first = lines[line];
    for (std::int64_t at = begin; at < end; at += step) {
      ((sums[kVector] += load(first + at + static_cast<std::int64_t>(kVector) * kLanes)), ...);
    }
  }
  const Floats by = all(divisor);
  (store(to + static_cast<std::int64_t>(kVector) * kLanes, sums[kVector] / by), ...);
}

template <class T>
[[gnu::always_inline]] inline void average_pixel(const T* const* lines, std::int64_t count,
                                                 std::int64_t begin, std::int64_t end,
                                                 const PixelChannels& channels, float divisor,
                                                 T* to) {
  std::int64_t c = 0;
  const auto strips = [&](auto vectors) __attribute__((always_inline)) {
    constexpr std::size_t kVectors = decltype(vectors)::value;
    constexpr auto kChannels = static_cast<std::int64_t>(kVectors) * kLanes;
    for (; c + kChannels <= channels.count; c += kChannels) {
      average_strip(std::make_index_sequence<kVectors>{}, lines, count, begin + c, end + c,
                    channels.step, divisor, to + c);
    }
  };
  strips(std::integral_constant<std::size_t, kMostSums>{});
  strips(std::integral_constant<std::size_t, 4>{});
  strips(std::integral_constant<std::size_t, 1>{});
  if (c == channels.count) return;
  const std::int64_t rest = channels.count - c;
  Floats sum = {};
  for (std::int64_t line = 0; line < count; ++line) {
    for (std::int64_t at = begin + c; at < end + c; at += channels.step) {
      sum += load_part(lines[line] + at, rest, 0);
    }
  }
  store_part(to + c, sum / all(divisor), rest);
}

[[gnu::always_inline]] inline void average_pixel(const double* const* lines, std::int64_t count,
                                                 std::int64_t begin, std::int64_t end,
                                                 const PixelChannels& channels, double divisor,
                                                 double* to) {
  for (std::int64_t c = 0; c < channels.count; ++c) {
    double sum = 0;
    for (std::int64_t line = 0; line < count; ++line) {
      for (std::int64_t at = begin + c; at < end + c; at += channels.step) sum += lines[line][at];
    }
    to[c] = sum / divisor;
  }
}

}  // namespace

template <class T>
void average_pixels(const T* const* lines, std::int64_t count, const RowSpans& spans,
                    const WideOf<T>* divisors, const PixelChannels& channels, T* to) noexcept {
  for (std::int64_t i = 0; i < spans.results; ++i, to += channels.step) {
    average_pixel(lines, count, spans.begin[i] * channels.step, spans.end[i] * channels.step,
                  channels, divisors[i], to);
  }
}

template <class T>
void add_elements(const T* __restrict from, WideOf<T> divisor, std::int64_t count, bool first,
                  WideOf<T>* __restrict to) noexcept {
  if (divisor == 1) {
    if (first) {
      for (std::int64_t i = 0; i < count; ++i) to[i] = simd::widen(from[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i] += simd::widen(from[i]);
    }
  } else if (first) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = simd::widen(from[i]) / divisor;
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] += simd::widen(from[i]) / divisor;
  }
}

template <class T>
void divide_elements(const WideOf<T>* __restrict from, WideOf<T> divisor, std::int64_t count,
                     T* __restrict to) noexcept {
  for (std::int64_t i = 0; i < count; ++i) simd::round_to(to[i], from[i] / divisor);
}

template <class T>
void average_windows(const WideOf<T>* __restrict row, const RowWindows& windows, WideOf<T> divisor,
                     const WideOf<T>* __restrict divisors, WideOf<T>* __restrict room,
                     T* __restrict to) noexcept {
  const std::int64_t results = windows.results, kernel = windows.kernel;
  const auto run = [=](auto stride) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < results; ++i) room[i] = row[i * stride];
    for (std::int64_t k = 1; k < kernel; ++k) {
      for (std::int64_t i = 0; i < results; ++i) room[i] += row[i * stride + k];
    }
    for (std::int64_t i = 0; i < results; ++i) {
      simd::round_to(to[i], room[i] / (divisor * divisors[i]));
    }
  };
  LOOM_STRIDES(windows.stride, run)
}

template <class T>
void average_spans(const WideOf<T>* row, const RowSpans& spans, WideOf<T> divisor,
                   const WideOf<T>* divisors, T* to) noexcept {
  for (std::int64_t i = 0; i < spans.results; ++i) {
    WideOf<T> sum = 0;
    for (std::int64_t j = spans.begin[i]; j < spans.end[i]; ++j) sum += row[j];
    simd::round_to(to[i], sum / (divisor * divisors[i]));
  }
}

// Elements that are a stride apart see windows in the same way: element i * stride + phase those of
// results i, i - 1, ... as long as the window reaches. Each phase is summed up, then they are
// woven.
template <class T>
void spread_windows(const WideOf<T>* __restrict row, const RowWindows& windows,
                    std::int64_t skipped, std::int64_t count, WideOf<T>* __restrict room,
                    T* __restrict to) noexcept {
  const std::int64_t kernel = windows.kernel;
  const std::int64_t pitch = (skipped + count - 1) / windows.stride + 1;
  if (kernel == windows.stride && kernel > 4) {
    // Each element sees one window, and so do long runs of them.
    for (std::int64_t i = 0; i < pitch; ++i) {
      T value;
      simd::round_to(value, row[i]);
      const std::int64_t from = i * kernel - skipped, till = from + kernel;
      for (std::int64_t at = from < 0 ? 0 : from; at < (till < count ? till : count); ++at) {
        to[at] = value;
      }
    }
    return;
  }
  const auto run = [=](auto stride) __attribute__((always_inline)) {
    for (std::int64_t phase = 0; phase < stride; ++phase) {
      WideOf<T>* __restrict const sums = room + phase * pitch;
      for (std::int64_t i = 0; i < pitch; ++i) sums[i] = phase < kernel ? row[i] : 0;
      for (std::int64_t k = 1; k * stride + phase < kernel; ++k) {
        for (std::int64_t i = 0; i < pitch; ++i) sums[i] += row[i - k];
      }
    }
    const auto element = [=](std::int64_t at) __attribute__((always_inline)) {
      simd::round_to(to[at - skipped], room[at % stride * pitch + at / stride]);
    };
    const std::int64_t first = (skipped + stride - 1) / stride, last = (skipped + count) / stride;
    const std::int64_t begin = first * stride < skipped + count ? first * stride : skipped + count;
    for (std::int64_t at = skipped; at < begin; ++at) element(at);
    for (std::int64_t i = first; i < last; ++i) {
      for (std::int64_t phase = 0; phase < stride; ++phase) {
        simd::round_to(to[i * stride + phase - skipped], room[phase * pitch + i]);
      }
    }
    for (std::int64_t at = last > first ? last * stride : begin; at < skipped + count; ++at) {
      element(at);
    }
  };
  LOOM_STRIDES(windows.stride, run)
}

template <class T>
void sum_spans(const WideOf<T>* row, const RowSpans& spans, T* to) noexcept {
  for (std::int64_t i = 0; i < spans.results; ++i) {
    WideOf<T> sum = 0;
    for (std::int64_t j = spans.begin[i]; j < spans.end[i]; ++j) sum += row[j];
    simd::round_to(to[i], sum);
  }
}

template <class T>
void take_larger(const T* __restrict from, std::int32_t place, std::int64_t count, bool first,
                 WideOf<T>* __restrict best, std::int32_t* __restrict places) noexcept {
  if (first) {
    for (std::int64_t i = 0; i < count; ++i) best[i] = simd::widen(from[i]);
    for (std::int64_t i = 0; places != nullptr && i < count; ++i) places[i] = place;
  } else if (places == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      const WideOf<T> value = simd::widen(from[i]);
      best[i] = (value > best[i]) | (value != value) ? value : best[i];
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const WideOf<T> value = simd::widen(from[i]);
      const bool larger = (value > best[i]) | (value != value);
      best[i] = larger ? value : best[i];
      places[i] = larger ? place : places[i];
    }
  }
}

template <class T>
void largest_of_windows(const WideOf<T>* __restrict row, const std::int32_t* __restrict bases,
                        const RowWindows& windows, std::int64_t skipped, WideOf<T>* __restrict best,
                        std::int32_t* __restrict places) noexcept {
  const std::int64_t results = windows.results, dilation = windows.dilation;
  const std::int64_t kernel = windows.kernel;
  const auto run = [=](auto stride) __attribute__((always_inline)) {
    const auto step = static_cast<std::int32_t>(stride);
    for (std::int64_t i = 0; i < results; ++i) best[i] = row[i * stride];
    if (bases == nullptr) {
      for (std::int64_t k = 1; k < kernel; ++k) {
        const WideOf<T>* const from = row + k * dilation;
        for (std::int64_t i = 0; i < results; ++i) {
          const WideOf<T> value = from[i * stride];
          best[i] = (value > best[i]) | (value != value) ? value : best[i];
        }
      }
      return;
    }
    const auto first = static_cast<std::int32_t>(-skipped);
    for (std::int64_t i = 0; i < results; ++i) {
      places[i] = bases[i * stride] + (first + static_cast<std::int32_t>(i) * step);
    }
    for (std::int64_t k = 1; k < kernel; ++k) {
      const WideOf<T>* const from = row + k * dilation;
      const std::int32_t* const base = bases + k * dilation;
      const auto column = static_cast<std::int32_t>(k * dilation) + first;
      for (std::int64_t i = 0; i < results; ++i) {
        const WideOf<T> value = from[i * stride], most = best[i];
        const std::int32_t place =
            base[i * stride] + (column + static_cast<std::int32_t>(i) * step);
        const bool none = value != value, before = place < places[i];
        const bool larger =
            (value > most) | ((value == most) & before) | (none & ((most == most) | !before));
        best[i] = larger ? value : most;
        places[i] = larger ? place : places[i];
      }
    }
  };
  LOOM_STRIDES(windows.stride, run)
}

template <class T>
void put_largest(const WideOf<T>* __restrict best, const std::int32_t* __restrict places,
                 std::int64_t count, T* __restrict to,
                 std::int64_t* __restrict to_places) noexcept {
  for (std::int64_t i = 0; i < count; ++i) put(to[i], best[i]);
  for (std::int64_t i = 0; to_places != nullptr && i < count; ++i) to_places[i] = places[i];
}

#define LOOM_INSTANTIATE(T)                                                                       \
  template void average_pixels(const T* const*, std::int64_t, const RowSpans&, const WideOf<T>*,  \
                               const PixelChannels&, T*) noexcept;                                \
  template void add_elements(const T*, WideOf<T>, std::int64_t, bool, WideOf<T>*) noexcept;       \
  template void divide_elements(const WideOf<T>*, WideOf<T>, std::int64_t, T*) noexcept;          \
  template void average_windows(const WideOf<T>*, const RowWindows&, WideOf<T>, const WideOf<T>*, \
                                WideOf<T>*, T*) noexcept;                                         \
  template void average_spans(const WideOf<T>*, const RowSpans&, WideOf<T>, const WideOf<T>*,     \
                              T*) noexcept;                                                       \
  template void spread_windows(const WideOf<T>*, const RowWindows&, std::int64_t, std::int64_t,   \
                               WideOf<T>*, T*) noexcept;                                          \
  template void sum_spans(const WideOf<T>*, const RowSpans&, T*) noexcept;                        \
  template void take_larger(const T*, std::int32_t, std::int64_t, bool, WideOf<T>*,               \
                            std::int32_t*) noexcept;                                              \
  template void largest_of_windows<T>(const WideOf<T>*, const std::int32_t*, const RowWindows&,   \
                                      std::int64_t, WideOf<T>*, std::int32_t*) noexcept;          \
  template void put_largest(const WideOf<T>*, const std::int32_t*, std::int64_t, T*,              \
                            std::int64_t*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(double)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::pool_resample::LOOM_SIMD
