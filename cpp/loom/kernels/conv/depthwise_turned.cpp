// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/depthwise_turned.h"

#include "loom/simd/floats.h"

#include <type_traits>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

using simd::LOOM_SIMD::Floats;
using simd::LOOM_SIMD::kLanes;
using simd::LOOM_SIMD::load;
using simd::LOOM_SIMD::store;

constexpr std::int64_t kStep = kTurnedChannels;

struct Taps {
  std::int64_t first, last;
};

// Those taps that see [0, size) of a pixel whose first tap is `from`.
[[gnu::always_inline]] inline Taps taps_inside(const WindowAxis& axis, std::int64_t from) {
  std::int64_t first = 0, last = axis.kernel;
  while (first < last && from + first * axis.dilation < 0) ++first;
  while (last > first && from + (last - 1) * axis.dilation >= axis.size) --last;
  return {first, last};
}

// A vector of channels of kPixels pixels, of which the first sees `image` through its first tap.
template <int kPixels, class T>
[[gnu::always_inline]] inline void sum_pixels(const T* image, std::int64_t row_step,
                                              const float* weights, Floats bias, Taps rows,
                                              Taps columns, const WindowAxis& y,
                                              const WindowAxis& x, T* to) {
  Floats sums[kPixels];
  for (int p = 0; p < kPixels; ++p) sums[p] = bias;
  for (std::int64_t i = rows.first; i < rows.last; ++i) {
    const T* from = image + i * y.dilation * row_step + columns.first * x.dilation * kStep;
    const float* with = weights + (i * x.kernel + columns.first) * kStep;
    for (std::int64_t j = columns.first; j < columns.last; ++j) {
      const Floats weight = load(with);
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p) sums[p] += load(from + p * x.stride * kStep) * weight;
      from += x.dilation * kStep;
      with += kStep;
    }
  }
  for (int p = 0; p < kPixels; ++p) store(to + p * kStep, sums[p]);
}

// [first, last) of the pixels of a row see something through all taps.
[[gnu::always_inline]] inline Taps middle_of(const WindowAxis& x) {
  const std::int64_t reach = (x.kernel - 1) * x.dilation;
  std::int64_t first = 0, last = x.result;
  while (first < last && first * x.stride < x.padding) ++first;
  while (last > first && (last - 1) * x.stride - x.padding + reach >= x.size) --last;
  return {first, last};
}

template <class T>
[[gnu::always_inline]] inline void sum_row(const T* row, std::int64_t row_step,
                                           const float* weights, Floats bias, Taps rows,
                                           Taps middle, const WindowAxis& y, const WindowAxis& x,
                                           T* to) {
  const auto beside = [&](std::int64_t p) {
    const std::int64_t from = p * x.stride - x.padding;
    sum_pixels<1>(row + from * kStep, row_step, weights, bias, rows, taps_inside(x, from), y, x,
                  to + p * kStep);
  };
  std::int64_t p = 0;
  for (; p < middle.first; ++p) beside(p);
  const auto some = [&](auto count) {
    sum_pixels<count.value>(row + (p * x.stride - x.padding) * kStep, row_step, weights, bias, rows,
                            {0, x.kernel}, y, x, to + p * kStep);
    p += count.value;
  };
  while (middle.last - p >= 8) some(std::integral_constant<int, 8>());
  if (middle.last - p >= 4) some(std::integral_constant<int, 4>());
  if (middle.last - p >= 2) some(std::integral_constant<int, 2>());
  if (middle.last - p >= 1) some(std::integral_constant<int, 1>());
  for (; p < x.result; ++p) beside(p);
}

template <class T>
void sum(const T* image, const float* weights, const float* bias, const WindowAxis& y,
         const WindowAxis& x, T* to) {
  const std::int64_t row_step = x.size * kStep;
  const Taps middle = middle_of(x);
  for (std::int64_t c = 0; c < kStep; c += kLanes) {
    const Floats first = load(bias + c);
    for (std::int64_t row = 0; row < y.result; ++row) {
      const std::int64_t top = row * y.stride - y.padding;
      sum_row(image + c + top * row_step, row_step, weights + c, first, taps_inside(y, top), middle,
              y, x, to + c + row * x.result * kStep);
    }
  }
}

}  // namespace

#define LOOM_DEPTHWISE_TURNED(T)                                                    \
  void depthwise_turned(const T* image, const float* weights, const float* bias,    \
                        const WindowAxis& y, const WindowAxis& x, T* to) noexcept { \
    sum(image, weights, bias, y, x, to);                                            \
  }
LOOM_DEPTHWISE_TURNED(float)
LOOM_DEPTHWISE_TURNED(simd::BFloat16)
#undef LOOM_DEPTHWISE_TURNED

}  // namespace loom::kernels::conv::LOOM_SIMD
