// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Winograd's tiles in channels_last, where vectors run along the channels of a pixel. Thread: any.

#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd_parts.h"

#include <algorithm>
#include <cstdint>

namespace loom::ops {

/// A panel of channels, which has at least a vector of them: the last ones may be some of those
/// before. Requires: there are kLanes channels or more.
[[nodiscard]] inline Blocks::Range panel_of(std::int64_t channels, std::int64_t index) noexcept {
  const std::int64_t first = std::min(index * kPanel, channels - kLanes);
  return {first, std::min(first + kPanel, channels)};
}

/// Weights (filters, channels, 3, 3) or, to be turned, (channels, filters, 3, 3). `last`: the
/// second dimension is last in memory.
template <class T>
struct WeightView {
  const T* data;
  std::int64_t filters, channels;
  bool turned, last;
};

/// to[(channel * kTaps + tap) * width + filter] of some channels and filters; taps stay in their
/// order. T: what transpose() takes.
template <class T>
void take_taps(const WeightView<T>& weights, Blocks::Range channels, Blocks::Range filters, T* to) {
  const std::int64_t width = filters.count();
  const std::int64_t plane = weights.turned ? weights.filters : weights.channels;
  const std::int64_t ld = plane * kTaps;
  if (weights.turned) {
    for (std::int64_t c = channels.first; c < channels.last; ++c, to += kTaps * width) {
      const T* from = weights.data + c * ld;
      if (!weights.last) {
        transpose(width, kTaps, from + filters.first * kTaps, kTaps, to, width);
        continue;
      }
      for (std::int64_t tap = 0; tap < kTaps; ++tap) {
        std::copy_n(from + tap * plane + filters.first, width, to + tap * width);
      }
    }
    return;
  }
  const T* from = weights.data + filters.first * ld;
  if (!weights.last) {
    transpose(width, channels.count() * kTaps, from + channels.first * kTaps, ld, to, width);
    return;
  }
  for (std::int64_t tap = 0; tap < kTaps; ++tap) {
    transpose(width, channels.count(), from + tap * plane + channels.first, ld, to + tap * width,
              kTaps * width);
  }
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
