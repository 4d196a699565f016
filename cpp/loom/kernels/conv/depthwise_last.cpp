// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/depthwise_last.h"

#include "loom/simd/floats.h"

#include <type_traits>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

using simd::LOOM_SIMD::Floats;
using simd::LOOM_SIMD::kLanes;
using simd::LOOM_SIMD::load;
using simd::LOOM_SIMD::load_part;
using simd::LOOM_SIMD::store;
using simd::LOOM_SIMD::store_part;

template <bool kWhole, class T>
[[gnu::always_inline]] inline Floats take(const T* from, std::int64_t count) {
  return kWhole ? load(from) : load_part(from, count, 0);
}
template <bool kWhole, class T>
[[gnu::always_inline]] inline void put(T* to, Floats value, std::int64_t count) {
  if constexpr (kWhole) {
    store(to, value);
  } else {
    store_part(to, value, count);
  }
}

// A vector of channels of kPixels pixels.
template <int kPixels, bool kWhole, class T>
[[gnu::always_inline]] inline void sum_pixels(const T* image, const float* weights, Floats bias,
                                              const PointRun& run, std::int64_t count, T* to) {
  Floats sums[kPixels];
  for (int p = 0; p < kPixels; ++p) sums[p] = bias;
  for (std::int64_t tap = 0; tap < run.count; ++tap) {
    const T* from = image + run.taps[tap].image;
    const Floats weight = take<kWhole>(weights + run.taps[tap].weight, count);
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p) {
      sums[p] += take<kWhole>(from + p * run.image_step, count) * weight;
    }
  }
  for (int p = 0; p < kPixels; ++p) put<kWhole>(to + p * run.step, sums[p], count);
}

// All channels of kPixels pixels: what was just stored is not a power of two before what is loaded
// next, which processors would take for the same place.
template <int kPixels, class T>
[[gnu::always_inline]] inline void sum_channels(const T* image, const float* weights,
                                                const float* bias, const PointRun& run, T* to) {
  std::int64_t c = 0;
  for (; c + kLanes <= run.channels; c += kLanes) {
    sum_pixels<kPixels, true>(image + c, weights + c, bias == nullptr ? Floats{} : load(bias + c),
                              run, kLanes, to + c);
  }
  const std::int64_t rest = run.channels - c;
  if (rest == 0) return;
  sum_pixels<kPixels, false>(image + c, weights + c,
                             bias == nullptr ? Floats{} : load_part(bias + c, rest, 0), run, rest,
                             to + c);
}

template <class T>
void sum(const T* image, const float* weights, const float* bias, const PointRun& run, T* to) {
  std::int64_t left = run.pixels;
  const auto some = [&](auto pixels) {
    sum_channels<pixels.value>(image, weights, bias, run, to);
    image += pixels.value * run.image_step;
    to += pixels.value * run.step;
    left -= pixels.value;
  };
  while (left >= 8) some(std::integral_constant<int, 8>());
  if (left >= 4) some(std::integral_constant<int, 4>());
  if (left >= 2) some(std::integral_constant<int, 2>());
  if (left >= 1) some(std::integral_constant<int, 1>());
}

// A vector of channels of kTaps taps.
template <int kTaps, bool kWhole, class T>
[[gnu::always_inline]] inline void add_taps(const T* image, const T* gradient, const PointTap* taps,
                                            const PointRun& run, std::int64_t count, float* to) {
  Floats sums[kTaps];
  for (int tap = 0; tap < kTaps; ++tap) sums[tap] = take<kWhole>(to + taps[tap].weight, count);
  for (std::int64_t p = 0; p < run.pixels; ++p) {
    const Floats value = take<kWhole>(gradient + p * run.step, count);
    const T* from = image + p * run.image_step;
#pragma GCC unroll 16
    for (int tap = 0; tap < kTaps; ++tap) {
      sums[tap] += value * take<kWhole>(from + taps[tap].image, count);
    }
  }
  for (int tap = 0; tap < kTaps; ++tap) put<kWhole>(to + taps[tap].weight, sums[tap], count);
}

template <bool kWhole, class T>
void add_channels(const T* image, const T* gradient, const PointRun& run, std::int64_t count,
                  float* to) {
  const PointTap *tap = run.taps, *end = tap + run.count;
  // As many as there are registers for.
  for (; end - tap >= 9; tap += 9) add_taps<9, kWhole>(image, gradient, tap, run, count, to);
  for (; end - tap >= 3; tap += 3) add_taps<3, kWhole>(image, gradient, tap, run, count, to);
  for (; tap < end; ++tap) add_taps<1, kWhole>(image, gradient, tap, run, count, to);
}

template <class T>
void add(const T* image, const T* gradient, const PointRun& run, float* to) {
  std::int64_t c = 0;
  for (; c + kLanes <= run.channels; c += kLanes) {
    add_channels<true>(image + c, gradient + c, run, kLanes, to + c);
  }
  const std::int64_t rest = run.channels - c;
  if (rest > 0) add_channels<false>(image + c, gradient + c, run, rest, to + c);
}

}  // namespace

#define LOOM_DEPTHWISE_POINTS(T)                                                        \
  void depthwise_points(const T* image, const float* weights, const float* bias,        \
                        const PointRun& run, T* to) noexcept {                          \
    sum(image, weights, bias, run, to);                                                 \
  }                                                                                     \
  void add_depthwise_point_taps(const T* image, const T* gradient, const PointRun& run, \
                                float* sums) noexcept {                                 \
    add(image, gradient, run, sums);                                                    \
  }
LOOM_DEPTHWISE_POINTS(float)
LOOM_DEPTHWISE_POINTS(simd::BFloat16)
#undef LOOM_DEPTHWISE_POINTS

}  // namespace loom::kernels::conv::LOOM_SIMD
