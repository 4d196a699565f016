// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How Winograd's tiles are taken out of images and put into them, a channel at a time: rows of the
// images are copied, then every second element is taken, so that each is read from memory once.
// Thread: any; memory of TileInputs is the calling thread's.

#include "loom/kernels/conv/tile_rows.h"
#include "loom/ops/recipes/product/columns.h"

#include <cstdint>
#include <vector>

namespace loom::ops {

using kernels::conv::TileCopy;
using kernels::conv::TileRun;

/// What some tiles see of the images: 4x4 elements, every two. `tiles` is tile_windows(). Only the
/// last one made on a thread is valid.
class TileInputs {
 public:
  TileInputs(const Windows& tiles, std::int64_t first, std::int64_t count);
  /// to[point * ld + tile] of a channel. Requires: `ld` is at least kTileSlack more than the tiles.
  void take(const float* channel, float* to, std::int64_t ld) const;

 private:
  std::int64_t ld_;
  std::int64_t longest_ = 0;
  float* rows_;
  std::vector<TileCopy> copies_;
  std::vector<TileRun> runs_;
};

/// Elements behind a row of tiles that may be overwritten.
inline constexpr std::int64_t kTileSlack = 16;

/// The 2x2 pixels of some tiles in a result: rows[y * 2 * width + 2 * tile + x]. `pixels` is
/// tile_results().
class TilePixels {
 public:
  TilePixels(const Windows& pixels, std::int64_t first, std::int64_t count, std::int64_t width);
  /// Pixels beside the image, and those of no tile, are left as they are.
  void take(const float* channel, float* rows) const;
  void put(const float* rows, float* channel) const;

 private:
  std::vector<TileCopy> copies_;
};

}  // namespace loom::ops
