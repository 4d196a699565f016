// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Winograd's tiles in channels_last, where vectors run along the channels of a pixel. Thread: any.

#include "loom/ops/product/convolve_parts.h"
#include "loom/ops/product/winograd_parts.h"

#include <algorithm>
#include <cstdint>

namespace loom::ops {

/// A panel of channels, which has at least a vector of them: the last ones may be some of those
/// before. Requires: there are kLanes channels or more.
[[nodiscard]] inline Blocks::Range panel_of(std::int64_t channels, std::int64_t index) noexcept {
  const std::int64_t first = std::min(index * kPanel, channels - kLanes);
  return {first, std::min(first + kPanel, channels)};
}

/// B' d B of the pixels of a tile: points[point * step + channel]. Requires: kLanes channels or
/// more.
void make_points(const float* const* pixels, std::int64_t channels, float* points,
                 std::int64_t step);

/// Calls function(tile, pixels) for the tiles of a range, from 0 on, with where the channels of
/// their kSide x kSide pixels are: at `beside` if that is not in the image.
template <std::int64_t kSide, class T, class Function>
void for_each_tile(const Windows& tiles, Blocks::Range range, T* images, std::int64_t channels,
                   T* beside, Function&& function) {
  const WindowAxis &ys = tiles.y, &xs = tiles.x;
  for (std::int64_t tile = range.first; tile < range.last; ++tile) {
    const std::int64_t image = tile / tiles.result_plane(), place = tile % tiles.result_plane();
    const std::int64_t top = 2 * (place / xs.result) - ys.padding;
    const std::int64_t left = 2 * (place % xs.result) - xs.padding;
    T* pixels[kSide * kSide];
    for (std::int64_t i = 0; i < kSide * kSide; ++i) {
      const std::int64_t y = top + i / kSide, x = left + i % kSide;
      const bool inside = y >= 0 && y < ys.size && x >= 0 && x < xs.size;
      pixels[i] = inside ? images + ((image * ys.size + y) * xs.size + x) * channels : beside;
    }
    function(tile - range.first, static_cast<T* const*>(pixels));
  }
}

}  // namespace loom::ops
