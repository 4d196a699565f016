// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/depthwise.h"

#include "loom/simd/floats.h"

#include <algorithm>
#include <utility>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

using simd::LOOM_SIMD::all;
using simd::LOOM_SIMD::Floats;
using simd::LOOM_SIMD::kLanes;
using simd::LOOM_SIMD::load;
using simd::LOOM_SIMD::load_part;
using simd::LOOM_SIMD::store;
using simd::LOOM_SIMD::store_part;

// Every second element of two vectors.
template <int... kIndex>
[[gnu::always_inline]] inline Floats even(Floats low, Floats high,
                                          std::integer_sequence<int, kIndex...>) {
  return __builtin_shufflevector(low, high, (2 * kIndex)...);
}
template <int... kIndex>
[[gnu::always_inline]] inline Floats odd(Floats low, Floats high,
                                         std::integer_sequence<int, kIndex...>) {
  return __builtin_shufflevector(low, high, (2 * kIndex + 1)...);
}

template <class T>
[[gnu::always_inline]] inline Floats load_some(const T* from, std::int64_t count) {
  return count >= kLanes ? load(from) : load_part(from, count > 0 ? count : 0, 0);
}

// Stores are whole vectors: what is beyond the elements is written after them, or nobody's.
void store_zeros(float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(to + i, Floats{});
}
template <class T>
[[gnu::always_inline]] inline void copy_row(const T* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(to + i, load_some(from + i, count - i));
}
template <class T>
[[gnu::always_inline]] inline void halve_row(const T* from, std::int64_t count, float* first,
                                             float* second) {
  constexpr auto kIndices = std::make_integer_sequence<int, kLanes>();
  for (std::int64_t i = 0; i < count; i += 2 * kLanes) {
    const Floats low = load_some(from + i, count - i);
    const Floats high = load_some(from + i + kLanes, count - i - kLanes);
    store(first + i / 2, even(low, high, kIndices));
    store(second + i / 2, odd(low, high, kIndices));
  }
}

// Columns of the image, and zeros on both sides of them.
template <class T>
[[gnu::always_inline]] inline void lay_out_row(const T* from, const SeenRows& how, float* to) {
  const std::int64_t count = how.end - how.begin, stride = how.stride;
  for (std::int64_t part = 0; part < stride; ++part) {
    // Those of this part before the image.
    store_zeros(to + part * how.part_step, (how.begin - part + stride - 1) / stride);
  }
  if (stride == 1) {
    copy_row(from, count, to + how.begin);
  } else if (stride == 2) {
    halve_row(from, count, to + how.place(how.begin), to + how.place(how.begin + 1));
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[how.place(how.begin + i)] = simd::widen(from[i]);
  }
  for (std::int64_t column = how.end; column < std::min(how.end + stride, how.columns); ++column) {
    store_zeros(to + how.place(column), (how.columns - column + stride - 1) / stride);
  }
}

template <class T>
void lay_out(const T* image, const SeenRows& how, float* to) {
  for (std::int64_t y = 0; y < how.rows; ++y, to += how.row_step) {
    if (y < how.first || y >= how.last) {
      store_zeros(to, how.row_step);
    } else {
      lay_out_row(image + (y - how.first) * how.image_step, how, to);
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void store_some(T* to, Floats value, std::int64_t count) {
  if (count >= kLanes) {
    store(to, value);
  } else {
    store_part(to, value, count);
  }
}

// kRows rows of the result at a time: what one of them sees its neighbours see, too. Rows of the
// result are `dilation` apart if that is not 1, so that this holds.
template <int kRows, int kKernelY, int kKernelX, int kStride, class T>
[[gnu::always_inline]] inline void sum_rows(const float* seen, std::int64_t row_step,
                                            const std::int64_t* places, const Floats* weights,
                                            Floats bias, std::int64_t columns, T* to,
                                            std::int64_t step) {
  for (std::int64_t x = 0; x < columns; x += kLanes) {
    Floats sums[kRows];
    for (int y = 0; y < kRows; ++y) sums[y] = bias;
#pragma GCC unroll 16
    for (int i = 0; i < (kRows - 1) * kStride + kKernelY; ++i) {
#pragma GCC unroll 16
      for (int j = 0; j < kKernelX; ++j) {
        const Floats value = load(seen + i * row_step + places[j] + x);
#pragma GCC unroll 16
        for (int y = 0; y < kRows; ++y) {
          const int k = i - y * kStride;
          if (k >= 0 && k < kKernelY) sums[y] += value * weights[k * kKernelX + j];
        }
      }
    }
    for (int y = 0; y < kRows; ++y) store_some(to + y * step + x, sums[y], columns - x);
  }
}

template <int kKernelY, int kKernelX, int kStride, class T>
void sum_known(const float* seen, const Floats* weights, Floats bias, const DepthwiseRows& how,
               T* to) {
  constexpr int kRows = 4;
  const std::int64_t dilation = how.dilation, row_step = dilation * how.row_step;
  std::int64_t places[kKernelX];
  for (int j = 0; j < kKernelX; ++j) places[j] = how.places[j];
  // Rows begin, begin + dilation, ...
  for (std::int64_t begin = 0; begin < dilation; ++begin) {
    const std::int64_t rows = (how.rows - begin + dilation - 1) / dilation;
    const auto run = [&](auto count, std::int64_t y) {
      sum_rows<count.value, kKernelY, kKernelX, kStride>(
          seen + (begin + y * dilation * kStride) * how.row_step, row_step, places, weights, bias,
          how.columns, to + (begin + y * dilation) * how.step, dilation * how.step);
    };
    std::int64_t y = 0;
    for (; y + kRows <= rows; y += kRows) run(std::integral_constant<int, kRows>(), y);
    if (y + 2 <= rows) {
      run(std::integral_constant<int, 2>(), y);
      y += 2;
    }
    if (y < rows) run(std::integral_constant<int, 1>(), y);
  }
}

// Vectors of pixels side by side.
template <int kVectors, class T>
[[gnu::always_inline]] inline void sum_vectors(const float* seen, const std::int64_t* offsets,
                                               const Floats* weights, std::int64_t taps,
                                               Floats bias, T* to, std::int64_t last) {
  Floats sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = bias;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const float* from = seen + offsets[tap];
    const Floats weight = weights[tap];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[v] += load(from + v * kLanes) * weight;
  }
  for (int v = 0; v < kVectors - 1; ++v) store(to + v * kLanes, sums[v]);
  store_some(to + (kVectors - 1) * kLanes, sums[kVectors - 1], last);
}

// Where taps see their first pixel.
std::int64_t offsets_of(const DepthwiseRows& how, std::int64_t* offsets) {
  const std::int64_t taps = how.kernel_y * how.kernel_x;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    offsets[tap] =
        tap / how.kernel_x * how.dilation * how.row_step + how.places[tap % how.kernel_x];
  }
  return taps;
}

template <class T>
void sum_any(const float* seen, const Floats* weights, Floats bias, const DepthwiseRows& how,
             T* to) {
  constexpr int kVectors = 4;
  std::int64_t offsets[kMostDepthwiseTaps];
  const std::int64_t taps = offsets_of(how, offsets);
  for (std::int64_t y = 0; y < how.rows; ++y, to += how.step) {
    const float* from = seen + y * how.stride * how.row_step;
    std::int64_t x = 0;
    for (; x + kVectors * kLanes <= how.columns; x += kVectors * kLanes) {
      sum_vectors<kVectors>(from + x, offsets, weights, taps, bias, to + x, kLanes);
    }
    for (; x < how.columns; x += kLanes) {
      sum_vectors<1>(from + x, offsets, weights, taps, bias, to + x, how.columns - x);
    }
  }
}

template <class T>
void sum(const float* seen, const float* weights, float bias, const DepthwiseRows& how, T* to) {
  Floats spread[kMostDepthwiseTaps];
  const std::int64_t taps = how.kernel_y * how.kernel_x;
  for (std::int64_t tap = 0; tap < taps; ++tap) spread[tap] = all(weights[tap]);
  const auto is = [&](std::int64_t kernel, std::int64_t stride) {
    return how.kernel_y == kernel && how.kernel_x == kernel && how.stride == stride &&
           (stride == 1 || how.dilation == 1);
  };
  const Floats from = all(bias);
  if (is(3, 1)) return sum_known<3, 3, 1>(seen, spread, from, how, to);
  if (is(3, 2)) return sum_known<3, 3, 2>(seen, spread, from, how, to);
  if (is(5, 1)) return sum_known<5, 5, 1>(seen, spread, from, how, to);
  if (is(5, 2)) return sum_known<5, 5, 2>(seen, spread, from, how, to);
  if (is(7, 1)) return sum_known<7, 7, 1>(seen, spread, from, how, to);
  sum_any(seen, spread, from, how, to);
}

// The sums of kTaps taps of a plane; lanes are added up at the end.
template <int kTaps, class T>
void add_taps(const float* seen, const T* gradient, const std::int64_t* offsets,
              const DepthwiseRows& how, float* to) {
  Floats sums[kTaps] = {};
  for (std::int64_t y = 0; y < how.rows; ++y, gradient += how.step) {
    const float* from = seen + y * how.stride * how.row_step;
    std::int64_t x = 0;
    for (; x + kLanes <= how.columns; x += kLanes) {
      const Floats value = load(gradient + x);
#pragma GCC unroll 16
      for (int tap = 0; tap < kTaps; ++tap) sums[tap] += value * load(from + offsets[tap] + x);
    }
    const std::int64_t rest = how.columns - x;
    if (rest == 0) continue;
    const Floats value = load_part(gradient + x, rest, 0);
#pragma GCC unroll 16
    for (int tap = 0; tap < kTaps; ++tap) {
      sums[tap] += value * load_part(from + offsets[tap] + x, rest, 0);
    }
  }
  for (int tap = 0; tap < kTaps; ++tap) to[tap] += simd::LOOM_SIMD::sum_of(sums[tap]);
}

template <class T>
void add_all_taps(const float* seen, const T* gradient, const DepthwiseRows& how, float* to) {
  std::int64_t offsets[kMostDepthwiseTaps];
  const std::int64_t taps = offsets_of(how, offsets);
  std::int64_t tap = 0;
  // As many as there are registers for.
  for (; tap + 9 <= taps; tap += 9) add_taps<9>(seen, gradient, offsets + tap, how, to + tap);
  for (; tap + 3 <= taps; tap += 3) add_taps<3>(seen, gradient, offsets + tap, how, to + tap);
  for (; tap < taps; ++tap) add_taps<1>(seen, gradient, offsets + tap, how, to + tap);
}

template <int... kIndex>
[[gnu::always_inline]] inline Floats pairs(Floats a, Floats b, std::integral_constant<int, 0>,
                                           std::integer_sequence<int, kIndex...>) {
  return __builtin_shufflevector(a, b, (kIndex / 2 + kIndex % 2 * kLanes)...);
}
template <int... kIndex>
[[gnu::always_inline]] inline Floats pairs(Floats a, Floats b, std::integral_constant<int, 1>,
                                           std::integer_sequence<int, kIndex...>) {
  return __builtin_shufflevector(a, b, (kLanes / 2 + kIndex / 2 + kIndex % 2 * kLanes)...);
}

template <class T>
void interleave(const float* parts, std::int64_t part_step, std::int64_t count,
                std::int64_t columns, T* to) {
  if (count != 2) {
    for (std::int64_t x = 0; x < columns; ++x) {
      simd::round_to(to[x], parts[x % count * part_step + x / count]);
    }
    return;
  }
  constexpr auto kIndices = std::make_integer_sequence<int, kLanes>();
  for (std::int64_t x = 0; x < columns; x += 2 * kLanes) {
    const Floats a = load(parts + x / 2), b = load(parts + part_step + x / 2);
    store_some(to + x, pairs(a, b, std::integral_constant<int, 0>(), kIndices), columns - x);
    if (columns - x <= kLanes) break;
    store_some(to + x + kLanes, pairs(a, b, std::integral_constant<int, 1>(), kIndices),
               columns - x - kLanes);
  }
}

}  // namespace

#define LOOM_DEPTHWISE(T)                                                                 \
  void lay_out_rows(const T* image, const SeenRows& how, float* to) noexcept {            \
    lay_out(image, how, to);                                                              \
  }                                                                                       \
  void depthwise_rows(const float* seen, const float* weights, float bias,                \
                      const DepthwiseRows& how, T* to) noexcept {                         \
    sum(seen, weights, bias, how, to);                                                    \
  }                                                                                       \
  void add_depthwise_taps(const float* seen, const T* gradient, const DepthwiseRows& how, \
                          float* sums) noexcept {                                         \
    add_all_taps(seen, gradient, how, sums);                                              \
  }                                                                                       \
  void interleave_row(const float* parts, std::int64_t part_step, std::int64_t count,     \
                      std::int64_t columns, T* to) noexcept {                             \
    interleave(parts, part_step, count, columns, to);                                     \
  }
LOOM_DEPTHWISE(float)
LOOM_DEPTHWISE(simd::BFloat16)
#undef LOOM_DEPTHWISE

}  // namespace loom::kernels::conv::LOOM_SIMD
