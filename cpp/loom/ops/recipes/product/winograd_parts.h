// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What Winograd's algorithm has in common in all directions. Its tiles are counted through all
// images as the pixels of Windows. Thread: any.

#include "loom/kernels/conv/winograd.h"
#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/winograd_tiles.h"

namespace loom::ops {

using kernels::conv::kLanes;
using kernels::conv::kTaps;
using kernels::conv::kTilePixels;
using kernels::conv::kTilePoints;

/// Points and rows are a cache line further from each other than they need be: else all points of a
/// tile would be in the same set of the cache.
inline constexpr std::int64_t kLine = 16;

/// Tiles side by side.
[[nodiscard]] constexpr std::int64_t half(std::int64_t count) noexcept { return (count + 1) / 2; }

/// Which point of weights a point of weights that are turned by half a circle is: the first and the
/// last of G's rows change places.
[[nodiscard]] constexpr std::int64_t turned_point(std::int64_t point) noexcept {
  constexpr std::int64_t kTurned[] = {3, 1, 2, 0};
  return 4 * kTurned[point / 4] + kTurned[point % 4];
}

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
