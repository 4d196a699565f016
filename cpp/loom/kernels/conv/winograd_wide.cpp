// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/winograd_wide.h"

#include <immintrin.h>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

using simd::BFloat16;

__m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// The elements of a vector: all, or the first ones. Others are neither read nor written.
struct Whole {
  static __m512 load(const BFloat16* from) {
    return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static __m512 load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(BFloat16* to, __m512 values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  }
};
struct Part {
  __mmask16 mask;
  __m512 load(const BFloat16* from) const { return widened(_mm256_maskz_loadu_epi16(mask, from)); }
  __m512 load(const float* from) const { return _mm512_maskz_loadu_ps(mask, from); }
  void store(BFloat16* to, __m512 values) const {
    _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  }
};

/// Calls function(at, elements) for the vectors that `count` elements make up.
template <class Function>
[[gnu::always_inline]] inline void for_each_vector(std::int64_t count, Function&& function) {
  std::int64_t at = 0;
  for (; at + kVectorFloats <= count; at += kVectorFloats) function(at, Whole{});
  if (at < count) function(at, Part{static_cast<__mmask16>((1U << (count - at)) - 1)});
}

[[gnu::always_inline]] inline void to_points(const __m512 (&d)[6], __m512 (&t)[6]) {
  const __m512 two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), five = _mm512_set1_ps(5);
  const __m512 a = _mm512_fnmadd_ps(four, d[2], d[4]), b = _mm512_fnmadd_ps(four, d[1], d[3]);
  const __m512 c = _mm512_sub_ps(d[4], d[2]), e = _mm512_sub_ps(d[3], d[1]);
  t[0] = _mm512_fmadd_ps(four, d[0], _mm512_fnmadd_ps(five, d[2], d[4]));
  t[1] = _mm512_add_ps(a, b);
  t[2] = _mm512_sub_ps(a, b);
  t[3] = _mm512_fmadd_ps(two, e, c);
  t[4] = _mm512_fnmadd_ps(two, e, c);
  t[5] = _mm512_fmadd_ps(four, d[1], _mm512_fnmadd_ps(five, d[3], d[5]));
}

[[gnu::always_inline]] inline void to_pixels(const __m512 (&m)[6], __m512 (&o)[4]) {
  const __m512 two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), eight = _mm512_set1_ps(8);
  const __m512 near = _mm512_add_ps(m[1], m[2]), far = _mm512_add_ps(m[3], m[4]);
  const __m512 one = _mm512_sub_ps(m[1], m[2]), other = _mm512_sub_ps(m[3], m[4]);
  o[0] = _mm512_add_ps(_mm512_add_ps(m[0], near), far);
  o[1] = _mm512_fmadd_ps(two, other, one);
  o[2] = _mm512_fmadd_ps(four, far, near);
  o[3] = _mm512_add_ps(_mm512_fmadd_ps(eight, other, one), m[5]);
}

[[gnu::always_inline]] inline void from_taps(const __m512 (&g)[3], __m512 (&u)[6]) {
  const __m512 quarter = _mm512_set1_ps(0.25F), sixth = _mm512_set1_ps(-1.F / 6);
  const __m512 small = _mm512_set1_ps(1.F / 24), middle = _mm512_set1_ps(1.F / 12);
  const __m512 sum = _mm512_mul_ps(_mm512_add_ps(g[0], g[2]), sixth);
  const __m512 even = _mm512_fnmadd_ps(g[2], sixth, _mm512_mul_ps(g[0], small));
  const __m512 odd = _mm512_mul_ps(g[1], middle);
  u[0] = _mm512_mul_ps(g[0], quarter);
  u[1] = _mm512_fmadd_ps(g[1], sixth, sum);
  u[2] = _mm512_fnmadd_ps(g[1], sixth, sum);
  u[3] = _mm512_add_ps(even, odd);
  u[4] = _mm512_sub_ps(even, odd);
  u[5] = g[2];
}

// The transposed transforms: A d and G' m.
[[gnu::always_inline]] inline void from_pixels(const __m512 (&d)[4], __m512 (&p)[6]) {
  const __m512 two = _mm512_set1_ps(2), four = _mm512_set1_ps(4);
  const __m512 even = _mm512_add_ps(d[0], d[2]), odd = _mm512_add_ps(d[1], d[3]);
  const __m512 wide = _mm512_fmadd_ps(four, d[2], d[0]), far = _mm512_fmadd_ps(four, d[3], d[1]);
  p[0] = d[0];
  p[1] = _mm512_add_ps(even, odd);
  p[2] = _mm512_sub_ps(even, odd);
  p[3] = _mm512_fmadd_ps(two, far, wide);
  p[4] = _mm512_fnmadd_ps(two, far, wide);
  p[5] = d[3];
}

[[gnu::always_inline]] inline void to_taps(const __m512 (&m)[6], __m512 (&g)[3]) {
  const __m512 quarter = _mm512_set1_ps(0.25F), sixth = _mm512_set1_ps(1.F / 6);
  const __m512 small = _mm512_set1_ps(1.F / 24), middle = _mm512_set1_ps(1.F / 12);
  const __m512 near = _mm512_add_ps(m[1], m[2]), far = _mm512_add_ps(m[3], m[4]);
  const __m512 one = _mm512_sub_ps(m[2], m[1]), other = _mm512_sub_ps(m[3], m[4]);
  g[0] = _mm512_fmadd_ps(small, far, _mm512_fnmadd_ps(sixth, near, _mm512_mul_ps(quarter, m[0])));
  g[1] = _mm512_fmadd_ps(middle, other, _mm512_mul_ps(sixth, one));
  g[2] = _mm512_fmadd_ps(sixth, _mm512_sub_ps(far, near), m[5]);
}

}  // namespace

// There are more values than registers: columns first, then rows.
void wide_tile_to_points(const BFloat16* pixels, std::int64_t row_step, std::int64_t channels,
                         float* points, std::int64_t step) noexcept {
  for_each_vector(channels, [=](std::int64_t at, auto elements) __attribute__((always_inline)) {
    __m512 columns[6][6];
    for (int x = 0; x < 6; ++x) {
      __m512 d[6];
      for (int y = 0; y < 6; ++y) d[y] = elements.load(pixels + y * row_step + x * channels + at);
      to_points(d, columns[x]);
    }
    for (int y = 0; y < 6; ++y) {
      __m512 d[6], t[6];
      for (int x = 0; x < 6; ++x) d[x] = columns[x][y];
      to_points(d, t);
      for (int x = 0; x < 6; ++x) _mm512_storeu_ps(points + (6 * y + x) * step + at, t[x]);
    }
  });
}

void wide_taps_to_points(const BFloat16* taps, std::int64_t count, bool turned, float* points,
                         std::int64_t step) noexcept {
  for_each_vector(count, [=](std::int64_t at, auto elements) __attribute__((always_inline)) {
    __m512 columns[3][6];
    for (int x = 0; x < 3; ++x) {
      __m512 g[3];
      for (int y = 0; y < 3; ++y) {
        const int tap = 3 * y + x;
        g[y] = elements.load(taps + (turned ? 8 - tap : tap) * count + at);
      }
      from_taps(g, columns[x]);
    }
    for (int y = 0; y < 6; ++y) {
      const __m512 g[3] = {columns[0][y], columns[1][y], columns[2][y]};
      __m512 u[6];
      from_taps(g, u);
      for (int x = 0; x < 6; ++x) _mm512_storeu_ps(points + (6 * y + x) * step + at, u[x]);
    }
  });
}

bool wide_products_to_pixels(const float* products, std::int64_t step, std::int64_t filters,
                             const BFloat16* bias, const WidePixels& pixels) noexcept {
  __m512 zero = _mm512_setzero_ps();  // until an infinity or NaN is multiplied with it
  for_each_vector(
      filters, [=, &zero](std::int64_t at, auto elements) __attribute__((always_inline)) {
        const __m512 added = bias == nullptr ? _mm512_setzero_ps() : elements.load(bias + at);
        __m512 columns[6][4];
        for (int x = 0; x < 6; ++x) {
          __m512 m[6];
          for (int y = 0; y < 6; ++y) m[y] = elements.load(products + (6 * y + x) * step + at);
          to_pixels(m, columns[x]);
        }
        for (std::int64_t y = 0; y < pixels.rows; ++y) {
          __m512 m[6], o[4];
          for (int x = 0; x < 6; ++x) m[x] = columns[x][y];
          to_pixels(m, o);
          for (const __m512& sum : o) zero = _mm512_fmadd_ps(sum, _mm512_setzero_ps(), zero);
          BFloat16* to = pixels.to + y * pixels.row_step + at;
          for (std::int64_t x = 0; x < pixels.columns; ++x) {
            elements.store(to + x * pixels.pixel_step, _mm512_add_ps(o[x], added));
          }
        }
      });
  return _mm512_cmpunord_ps_mask(zero, zero) == 0;
}

void wide_pixels_to_points(const BFloat16* pixels, std::int64_t row_step, std::int64_t pixel_step,
                           std::int64_t count, float* points, std::int64_t step) noexcept {
  for_each_vector(count, [=](std::int64_t at, auto elements) __attribute__((always_inline)) {
    __m512 columns[4][6];
    for (int x = 0; x < 4; ++x) {
      __m512 d[4];
      for (int y = 0; y < 4; ++y) d[y] = elements.load(pixels + y * row_step + x * pixel_step + at);
      from_pixels(d, columns[x]);
    }
    for (int y = 0; y < 6; ++y) {
      const __m512 d[4] = {columns[0][y], columns[1][y], columns[2][y], columns[3][y]};
      __m512 p[6];
      from_pixels(d, p);
      for (int x = 0; x < 6; ++x) _mm512_storeu_ps(points + (6 * y + x) * step + at, p[x]);
    }
  });
}

void wide_sums_to_taps(const float* sums, std::int64_t step, std::int64_t count,
                       BFloat16* taps) noexcept {
  for_each_vector(count, [=](std::int64_t at, auto elements) __attribute__((always_inline)) {
    __m512 columns[6][3];
    for (int x = 0; x < 6; ++x) {
      __m512 m[6];
      for (int y = 0; y < 6; ++y) m[y] = elements.load(sums + (6 * y + x) * step + at);
      to_taps(m, columns[x]);
    }
    for (int y = 0; y < 3; ++y) {
      __m512 m[6], g[3];
      for (int x = 0; x < 6; ++x) m[x] = columns[x][y];
      to_taps(m, g);
      for (int x = 0; x < 3; ++x) elements.store(taps + (3 * y + x) * count + at, g[x]);
    }
  });
}

}  // namespace loom::kernels::conv::LOOM_SIMD
