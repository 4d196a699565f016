// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/winograd.h"

#include "loom/simd/vector_bytes.h"

#include <cstring>
#include <utility>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

// Passed by value, their calling convention would depend on the instruction set.
using Lanes [[gnu::vector_size(simd::kVectorBytes)]] = float;
constexpr std::int64_t kVector = sizeof(Lanes) / sizeof(float);
static_assert(kLanes % kVector == 0);
using LaneNumbers = std::make_integer_sequence<int, kVector>;

/// The last vector may overlap the one before.
[[gnu::always_inline]] inline std::int64_t last_whole(std::int64_t begin, std::int64_t count) {
  return begin < count - kVector ? begin : count - kVector;
}

// Elements of two vectors in turns, from kFirst on.
template <int kFirst, int... kLane>
[[gnu::always_inline]] inline void take_turns(const Lanes& even, const Lanes& odd, Lanes& to,
                                              std::integer_sequence<int, kLane...>) {
  to = __builtin_shufflevector(even, odd, (kFirst + kLane / 2 + kLane % 2 * int{kVector})...);
}

// Elements 0, 2, 4, ... of two vectors, or the others.
template <int kOdd, int... kLane>
[[gnu::always_inline]] inline void every_second(const Lanes& low, const Lanes& high, Lanes& to,
                                                std::integer_sequence<int, kLane...>) {
  to = __builtin_shufflevector(low, high, (2 * kLane + kOdd)...);
}

/// B' d B of a tile, or of as many as there are lanes.
[[gnu::always_inline]] inline void to_points(Lanes (&d)[kTilePoints]) {
  for (int turn = 0; turn < 2; ++turn) {
    const std::int64_t step = turn == 0 ? 4 : 1, other = turn == 0 ? 1 : 4;
    for (std::int64_t i = 0; i < 4; ++i) {
      Lanes* at = d + i * other;
      const Lanes a = at[0] - at[2 * step], b = at[step] + at[2 * step];
      const Lanes c = at[2 * step] - at[step], e = at[step] - at[3 * step];
      at[0] = a;
      at[step] = b;
      at[2 * step] = c;
      at[3 * step] = e;
    }
  }
}

/// A' m A: the pixels that the products of a tile make.
[[gnu::always_inline]] inline void to_pixels(const Lanes (&m)[kTilePoints],
                                             Lanes (&pixels)[kTilePixels]) {
  Lanes rows[2][4];
  for (int i = 0; i < 4; ++i) {
    rows[0][i] = m[i] + m[4 + i] + m[8 + i];
    rows[1][i] = m[4 + i] - m[8 + i] - m[12 + i];
  }
  for (std::int64_t y = 0; y < 2; ++y) {
    pixels[2 * y] = rows[y][0] + rows[y][1] + rows[y][2];
    pixels[2 * y + 1] = rows[y][1] - rows[y][2] - rows[y][3];
  }
}

// A d A' of 2x2 pixels, to points[point * step].
[[gnu::always_inline]] inline void store_points(const Lanes (&d)[kTilePixels], float* points,
                                                std::int64_t step) {
  Lanes rows[4][2];
  for (int x = 0; x < 2; ++x) {
    rows[0][x] = d[x];
    rows[1][x] = d[x] + d[2 + x];
    rows[2][x] = d[x] - d[2 + x];
    rows[3][x] = -d[2 + x];
  }
  for (int y = 0; y < 4; ++y) {
    const Lanes made[4] = {rows[y][0], rows[y][0] + rows[y][1], rows[y][0] - rows[y][1],
                           -rows[y][1]};
    for (int x = 0; x < 4; ++x) {
      std::memcpy(points + (4 * y + x) * step, &made[x], sizeof(Lanes));
    }
  }
}

}  // namespace

void tiles_to_points(const float* tiles, std::int64_t ld, std::int64_t width, float* points,
                     std::int64_t step) noexcept {
  for (std::int64_t at = 0; at < width; at += kVector) {
    Lanes d[kTilePoints];
    for (std::int64_t i = 0; i < kTilePoints; ++i)
      std::memcpy(&d[i], tiles + i * ld + at, sizeof(Lanes));
    to_points(d);
    for (std::int64_t i = 0; i < kTilePoints; ++i)
      std::memcpy(points + i * step + at, &d[i], sizeof(Lanes));
  }
}

void products_to_rows(const float* products, std::int64_t step, std::int64_t width, float bias,
                      float* to) noexcept {
  for (std::int64_t at = 0; at < width; at += kVector) {
    Lanes m[kTilePoints], made[kTilePixels];
    for (std::int64_t i = 0; i < kTilePoints; ++i)
      std::memcpy(&m[i], products + i * step + at, sizeof(Lanes));
    to_pixels(m, made);
    for (int y = 0; y < 2; ++y) {
      const Lanes even = made[2 * y] + bias, odd = made[2 * y + 1] + bias;
      Lanes first, second;
      take_turns<0>(even, odd, first, LaneNumbers());
      take_turns<kVector / 2>(even, odd, second, LaneNumbers());
      std::memcpy(to + 2 * (y * width + at), &first, sizeof(Lanes));
      std::memcpy(to + 2 * (y * width + at) + kVector, &second, sizeof(Lanes));
    }
  }
}

void taps_to_points(const float* taps, std::int64_t count, float* points,
                    std::int64_t step) noexcept {
  for (std::int64_t begin = 0; begin < count; begin += kVector) {
    const std::int64_t i = last_whole(begin, count);
    Lanes g[kTaps], rows[4][3];
    for (std::int64_t tap = 0; tap < kTaps; ++tap)
      std::memcpy(&g[tap], taps + tap * count + i, sizeof(Lanes));
    for (int x = 0; x < 3; ++x) {
      const Lanes a = g[x], b = g[3 + x], c = g[6 + x];
      rows[0][x] = a;
      rows[1][x] = (a + c + b) * 0.5F;
      rows[2][x] = (a + c - b) * 0.5F;
      rows[3][x] = c;
    }
    for (int y = 0; y < 4; ++y) {
      const Lanes a = rows[y][0], b = rows[y][1], c = rows[y][2];
      const Lanes made[4] = {a, (a + c + b) * 0.5F, (a + c - b) * 0.5F, c};
      for (int x = 0; x < 4; ++x)
        std::memcpy(points + (4 * y + x) * step + i, &made[x], sizeof(Lanes));
    }
  }
}

void rows_to_points(const float* pixels, std::int64_t width, float* points,
                    std::int64_t step) noexcept {
  for (std::int64_t at = 0; at < width; at += kVector) {
    Lanes d[kTilePixels], low, high;
    for (std::int64_t y = 0; y < 2; ++y) {
      std::memcpy(&low, pixels + 2 * (y * width + at), sizeof(Lanes));
      std::memcpy(&high, pixels + 2 * (y * width + at) + kVector, sizeof(Lanes));
      every_second<0>(low, high, d[2 * y], LaneNumbers());
      every_second<1>(low, high, d[2 * y + 1], LaneNumbers());
    }
    store_points(d, points + at, step);
  }
}

void pixels_to_points(const float* const* pixels, std::int64_t first, std::int64_t filters,
                      float* points, std::int64_t step) noexcept {
  for (std::int64_t begin = 0; begin < filters; begin += kVector) {
    const std::int64_t at = last_whole(begin, filters);
    Lanes d[kTilePixels];
    for (std::int64_t i = 0; i < kTilePixels; ++i) {
      std::memcpy(&d[i], pixels[i] + first + at, sizeof(Lanes));
    }
    store_points(d, points + at, step);
  }
}

void sums_to_taps(const float* sums, std::int64_t step, std::int64_t count, float* taps) noexcept {
  for (std::int64_t begin = 0; begin < count; begin += kVector) {
    const std::int64_t i = last_whole(begin, count);
    Lanes m[kTilePoints], rows[3][4];
    for (std::int64_t p = 0; p < kTilePoints; ++p)
      std::memcpy(&m[p], sums + p * step + i, sizeof(Lanes));
    for (int x = 0; x < 4; ++x) {
      const Lanes a = m[x], b = m[4 + x], c = m[8 + x], d = m[12 + x];
      rows[0][x] = a + (b + c) * 0.5F;
      rows[1][x] = (b - c) * 0.5F;
      rows[2][x] = (b + c) * 0.5F + d;
    }
    for (int y = 0; y < 3; ++y) {
      const Lanes a = rows[y][0], b = rows[y][1], c = rows[y][2], d = rows[y][3];
      const Lanes made[3] = {a + (b + c) * 0.5F, (b - c) * 0.5F, (b + c) * 0.5F + d};
      for (int x = 0; x < 3; ++x)
        std::memcpy(taps + (3 * y + x) * count + i, &made[x], sizeof(Lanes));
    }
  }
}

void tile_to_points(const float* const* pixels, std::int64_t channels, float* points,
                    std::int64_t step) noexcept {
  for (std::int64_t begin = 0; begin < channels; begin += kVector) {
    const std::int64_t at = last_whole(begin, channels);
    Lanes d[kTilePoints];
    for (std::int64_t i = 0; i < kTilePoints; ++i)
      std::memcpy(&d[i], pixels[i] + at, sizeof(Lanes));
    to_points(d);
    for (std::int64_t i = 0; i < kTilePoints; ++i)
      std::memcpy(points + i * step + at, &d[i], sizeof(Lanes));
  }
}

bool products_to_pixels(const float* products, std::int64_t step, std::int64_t filters,
                        const float* bias, float* const* pixels) noexcept {
  Lanes zero = {};  // until an infinity or NaN is multiplied with it
  for (std::int64_t begin = 0; begin < filters; begin += kVector) {
    const std::int64_t at = last_whole(begin, filters);
    Lanes m[kTilePoints], made[kTilePixels], added;
    for (std::int64_t i = 0; i < kTilePoints; ++i)
      std::memcpy(&m[i], products + i * step + at, sizeof(Lanes));
    std::memcpy(&added, bias + at, sizeof(Lanes));
    to_pixels(m, made);
    for (std::int64_t i = 0; i < kTilePixels; ++i) {
      made[i] += added;
      zero += made[i] * 0.F;
      std::memcpy(pixels[i] + at, &made[i], sizeof(Lanes));
    }
  }
  float sum = 0;
  for (int i = 0; i < kVector; ++i) sum += zero[i];
  return sum == 0;
}

}  // namespace loom::kernels::conv::LOOM_SIMD
