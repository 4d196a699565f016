// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What Winograd's algorithm has in common in all directions. Its tiles are counted through all
// images as the pixels of Windows. Thread: any.

#include "loom/ops/product/columns.h"
#include "loom/ops/product/winograd_tiles.h"

namespace loom::ops {

inline constexpr std::int64_t kTilePoints = 16;  // 4x4 elements of the images
inline constexpr std::int64_t kTilePixels = 4;   // 2x2 of the result
inline constexpr std::int64_t kTaps = 9;

/// Points and rows are a cache line further from each other than they need be: else all points of a
/// tile would be in the same set of the cache.
inline constexpr std::int64_t kLine = 16;

inline constexpr std::int64_t kLanes = 16;
using Lanes [[gnu::vector_size(64)]] = float;

/// Tiles side by side.
[[nodiscard]] constexpr std::int64_t half(std::int64_t count) noexcept { return (count + 1) / 2; }

/// Which point of weights a point of weights that are turned by half a circle is: the first and the
/// last of G's rows change places.
[[nodiscard]] constexpr std::int64_t turned_point(std::int64_t point) noexcept {
  constexpr std::int64_t kTurned[] = {3, 1, 2, 0};
  return 4 * kTurned[point / 4] + kTurned[point % 4];
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

/// G g G': taps[tap * count + i] to points[point * step + i]. Requires: `count` is at least kLanes.
void transform_weights(const float* taps, std::int64_t count, float* points, std::int64_t step);

/// What the tiles of a convolution see of its images: 4x4 elements, every two.
[[nodiscard]] Windows tile_windows(const Windows& windows);

/// What they are of its result, which has `filters` channels.
[[nodiscard]] Windows tile_results(const Windows& windows, std::int64_t filters);

/// Channels of `count` tiles of the images, which are `plane` elements apart:
/// points[point * step + channel * ld + tile], `width` (a multiple of 16) tiles wide; those beyond
/// `count` are 0.
void make_points(const TileInputs& tiles, std::int64_t count, const float* images,
                 std::int64_t plane, std::int64_t channels, std::int64_t width, float* points,
                 std::int64_t step, std::int64_t ld);

}  // namespace loom::ops
