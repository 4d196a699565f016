// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/winograd_strided.h"

#include <cstring>

namespace loom::kernels::conv::strided::LOOM_SIMD {
namespace {

using Lanes [[gnu::vector_size(64)]] = float;

Lanes load(const float* from) {
  Lanes made;
  std::memcpy(&made, from, sizeof made);
  return made;
}
void store(const Lanes& from, float* to) { std::memcpy(to, &from, sizeof from); }

// B' d: the points of five elements, or of four odd ones.
template <std::int64_t kCount>
void to_points(const Lanes (&d)[kCount], Lanes* points) {
  points[0] = (d[0] - d[2]) * 2.F + (d[3] - d[1]);
  points[1] = d[1] * 2.F + d[2] - d[3];
  points[2] = d[2] * 3.F - d[1] * 2.F - d[3];
  points[3] = d[3] - d[1];
  if constexpr (kCount == kSide) points[4] = (d[1] - d[3]) * 2.F + (d[4] - d[2]);
}

// G g of four taps, the last of which may be none.
void taps_to_points(const Lanes (&g)[4], Lanes (&points)[kSide]) {
  const Lanes even = g[0] + g[2], odd = g[1] + g[3];
  points[0] = g[0] * 0.5F;
  points[1] = (even + odd) * 0.5F;
  points[2] = (even - odd) * (1.F / 6);
  points[3] = (g[0] + 2.F * g[1] + 4.F * g[2] + 8.F * g[3]) * (1.F / 6);
  points[4] = g[3];
}

// A' m: the two pixels that five products make; the first one has nothing of the last product.
void to_pair(const Lanes& m0, const Lanes& m1, const Lanes& m2, const Lanes& m3, Lanes& first,
             Lanes& second) {
  first = m0 + (m1 + m2) + m3;
  second = (m1 - m2) + m3 * 2.F;
}

template <std::int64_t kCount>
void transform_rows(const float* rows, std::int64_t row_step, std::int64_t tiles, float* points,
                    std::int64_t step) {
  for (std::int64_t at = 0; at < tiles; at += kLane) {
    Lanes d[kCount], made[kCount];
    for (std::int64_t i = 0; i < kCount; ++i) d[i] = load(rows + i * row_step + at);
    to_points(d, made);
    for (std::int64_t i = 0; i < kCount; ++i) store(made[i], points + i * step + at);
  }
}

template <std::int64_t kRows>
using Sums = Lanes[kRows][kFilters][kVectors];

// `count` rows of kRows points in y.
template <std::int64_t kRows>
[[gnu::always_inline]] inline void add_products(const float* points, std::int64_t ld,
                                                const float* weights, std::int64_t count,
                                                Sums<kRows>& sums) {
  for (std::int64_t i = 0; i < count; ++i, points += kSide * ld, weights += kSide * kFilters) {
#pragma GCC unroll 4
    for (std::int64_t y = 0; y < kRows; ++y) {
      Lanes low = load(points + y * ld), high = load(points + y * ld + kLane);
      // In registers: read again for each filter they would take longer than the products.
      asm("" : "+v"(low), "+v"(high));
#pragma GCC unroll 3
      for (std::int64_t f = 0; f < kFilters; ++f) {
        const float weight = weights[y * kFilters + f];
        sums[y][f][0] += low * weight;
        sums[y][f][1] += high * weight;
      }
    }
  }
}

// Pixels of a vector of tiles, in the order in which they lie in a row.
void interleave(const Lanes& first, const Lanes& second, float* to) {
  store(__builtin_shufflevector(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                23),
        to);
  store(__builtin_shufflevector(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                15, 31),
        to + kLane);
}

}  // namespace

void transform_taps(const float* taps, std::int64_t tap_step, float* points, std::int64_t kind_step,
                    std::int64_t step) noexcept {
  for (std::int64_t kind = 0; kind < kKindCount; ++kind) {
    const auto [odd_y, odd_x] = kKinds[kind];
    Lanes columns[4][kSide];
    for (std::int64_t x = 0; x < 4; ++x) {
      Lanes g[4] = {};
      for (std::int64_t y = 0; y < 4 - odd_y && x < 4 - odd_x; ++y) {
        g[y] = load(taps + ((2 * y + odd_y) * kKernel + 2 * x + odd_x) * tap_step);
      }
      taps_to_points(g, columns[x]);
    }
    for (std::int64_t y = 0; y < kSide; ++y) {
      const Lanes g[4] = {columns[0][y], columns[1][y], columns[2][y], columns[3][y]};
      Lanes made[kSide];
      taps_to_points(g, made);
      for (std::int64_t x = 0; x < kSide; ++x) {
        store(made[x], points + kind * kind_step + x * step + y * kLane);
      }
    }
  }
}

void transform_row(const float* line, std::int64_t tiles, float* points, std::int64_t ld,
                   float* memory) noexcept {
  // Every fourth element, so that neighbouring tiles see neighbouring elements.
  const std::int64_t count = tiles + 2 * kLane;
  float *a = memory, *b = a + count, *c = b + count, *d = c + count;
  for (std::int64_t i = 0; i < count; ++i) {
    a[i] = line[4 * i];
    b[i] = line[4 * i + 1];
    c[i] = line[4 * i + 2];
    d[i] = line[4 * i + 3];
  }
  for (std::int64_t at = 0; at < tiles; at += kLane) {
    const Lanes even[kSide] = {load(a + at), load(c + at), load(a + at + 1), load(c + at + 1),
                               load(a + at + 2)};
    const Lanes odd[kOddSide] = {load(b + at), load(d + at), load(b + at + 1), load(d + at + 1)};
    Lanes made[kRowPoints];
    to_points(even, made);
    to_points(odd, made + kSide);
    for (std::int64_t i = 0; i < kRowPoints; ++i) store(made[i], points + i * ld + at);
  }
}

void transform_even_rows(const float* rows, std::int64_t row_step, std::int64_t tiles,
                         float* points, std::int64_t step) noexcept {
  transform_rows<kSide>(rows, row_step, tiles, points, step);
}

void transform_odd_rows(const float* rows, std::int64_t row_step, std::int64_t tiles, float* points,
                        std::int64_t step) noexcept {
  transform_rows<kOddSide>(rows, row_step, tiles, points, step);
}

bool multiply(const float* points, std::int64_t ld, const float* weights, std::int64_t channels,
              const float* bias, const Pixels& to) noexcept {
  Lanes rows[kFilters][kVectors][2][kSide];
  for (std::int64_t x = 0; x < kSide; ++x) {
    const float* some = points + x * kKindCount * channels * kSide * ld;
    const float* with = weights + x * kKindCount * channels * kSide * kFilters;
    Sums<kOddSide> sums = {};
    add_products(some, ld, with, (x < kOddSide ? 4 : 2) * channels, sums);
    Sums<1> last;
    for (std::int64_t f = 0; f < kFilters; ++f) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        to_pair(sums[0][f][v], sums[1][f][v], sums[2][f][v], sums[3][f][v], rows[f][v][0][x],
                last[0][f][v]);
      }
    }
    // Plus the last point in y, of kinds that are even in y.
    add_products(some + (channels * kSide + kOddSide) * ld, ld,
                 with + (channels * kSide + kOddSide) * kFilters, (x < kOddSide ? 2 : 1) * channels,
                 last);
    for (std::int64_t f = 0; f < kFilters; ++f) {
      for (std::int64_t v = 0; v < kVectors; ++v) rows[f][v][1][x] = last[0][f][v];
    }
  }
  Lanes zero = {};  // until an infinity or NaN is multiplied with it
  for (std::int64_t f = 0; f < kFilters; ++f) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      for (std::int64_t y = 0; y < 2; ++y) {
        const auto& m = rows[f][v][y];
        Lanes first, second;
        to_pair(m[0], m[1], m[2], m[3], first, second);
        first += bias[f];
        second += m[4] + bias[f];
        zero += (first + second) * 0.F;
        float* at = to.to + f * to.filter_step + y * to.row_step;
        if (to.interleaved) {
          interleave(first, second, at + 2 * v * kLane);
        } else {
          store(first, at + v * kLane);
          store(second, at + to.column_step + v * kLane);
        }
      }
    }
  }
  float sum = 0;
  for (int i = 0; i < kLane; ++i) sum += zero[i];
  return sum == 0;
}

}  // namespace loom::kernels::conv::strided::LOOM_SIMD
