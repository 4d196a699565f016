// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tiles of Winograd's F(4x4, 3x3), as windows that are taken from rows of images of bfloat16. Their
// rows are counted through all images. Thread: any.

#include "loom/base/ceil_div.h"
#include "loom/kernels/conv/winograd_wide.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/pixel_rows.h"

#include <algorithm>
#include <cstdint>

namespace loom::ops {

using kernels::conv::kWidePoints;
using kernels::conv::kWideResult;
using kernels::conv::kWideSide;

/// What the tiles of a convolution see of its images.
[[nodiscard]] inline Windows wide_tiles(const Windows& windows) {
  Windows made = windows;
  for (WindowAxis* axis : {&made.y, &made.x}) {
    *axis = {axis->size, ceil_div(axis->result, kWideResult), kWideSide, kWideResult, axis->padding,
             1};
  }
  return made;
}

/// What they are of its result, which has `filters` channels.
[[nodiscard]] inline Windows wide_results(const Windows& windows, std::int64_t filters) {
  Windows made = windows;
  made.channels = filters;
  for (WindowAxis* axis : {&made.y, &made.x}) {
    *axis = {axis->result, ceil_div(axis->result, kWideResult), kWideResult, kWideResult, 0, 1};
  }
  return made;
}

/// Tiles that are transformed for the gradient of the weights before they are multiplied: they stay
/// in the last cache.
[[nodiscard]] inline std::int64_t most_group_tiles(std::int64_t channels,
                                                   std::int64_t filters) noexcept {
  constexpr std::int64_t kMostTiles = 512, kBytes = 16 << 20;
  const std::int64_t tile = kWidePoints * (channels + filters) * std::int64_t{sizeof(float)};
  return std::min(kMostTiles, kBytes / tile);
}

/// Calls function(image, row, pixels, top) for some rows of tiles: those of tile row `row` of
/// `image` begin in row `top` of `pixels`, an ImageRows. `p`: its windows are tiles.
template <class Function>
void for_each_tile_row(const PixelProblem& p, Blocks::Range rows, Function&& function) {
  const WindowAxis& y = p.windows.y;
  for (std::int64_t row = rows.first; row < rows.last;) {
    const std::int64_t image = row / y.result, first = row % y.result;
    const std::int64_t last = std::min(first + rows.last - row, y.result);
    ImageRows pixels(p, image, first * y.stride - y.padding,
                     (last - first - 1) * y.stride + y.kernel, {0, p.windows.x.result});
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t top = (r - first) * y.stride;
      pixels.make(top + y.kernel);
      function(image, r, static_cast<const ImageRows&>(pixels), top);
    }
    row += last - first;
  }
}

}  // namespace loom::ops
