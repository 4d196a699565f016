// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/winograd_tiles.h"

#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd_parts.h"

#include <algorithm>

namespace loom::ops {
namespace {

using kernels::conv::copy_in;
using kernels::conv::copy_out;
using kernels::conv::split_tiles;

constexpr std::int64_t kSide = 4;  // of a tile of the images
constexpr std::int64_t kMostLanes = 16;

const Scratch t_rows;

}  // namespace

TileInputs::TileInputs(const Windows& tiles, std::int64_t first, std::int64_t count)
    : ld_(2 * tiles.x.result + 2) {
  const WindowAxis &ys = tiles.y, &xs = tiles.x;
  // The gradient of padded images may see less than all of what was made of them.
  const std::int64_t before = std::max<std::int64_t>(xs.padding, 0);
  const std::int64_t skipped = std::max<std::int64_t>(-xs.padding, 0);
  std::int64_t rows = 0;
  for_each_image(tiles, first, count, [&](const ImageRun& run) {
    const std::int64_t image = run.image * tiles.channels * tiles.plane();
    const std::int64_t top = run.pixel / xs.result;
    const std::int64_t bottom = (run.pixel + run.count - 1) / xs.result;
    const std::int64_t begin = rows;
    for (std::int64_t row = 2 * top; row < 2 * bottom + kSide; ++row, ++rows) {
      const std::int64_t y = row - ys.padding;
      const std::int64_t width = std::min(xs.size - skipped, ld_ - before);
      if (y < 0 || y >= ys.size || width <= 0) continue;
      copies_.push_back({image + y * xs.size + skipped, rows * ld_ + before, width});
    }
    for (std::int64_t done = 0; done < run.count;) {
      const std::int64_t row = (run.pixel + done) / xs.result, x = (run.pixel + done) % xs.result;
      const std::int64_t length = std::min(xs.result - x, run.count - done);
      runs_.push_back({(begin + 2 * (row - top)) * ld_ + 2 * x, run.column + done, length});
      longest_ = std::max(longest_, length);
      done += length;
    }
  });
  // Runs may read a little more than there is.
  const std::int64_t size = rows * ld_ + 2 * kMostLanes + kSide;
  rows_ = t_rows.get<float>(size);
  std::fill_n(rows_, size, 0.F);
}

void TileInputs::take(const float* channel, float* to, std::int64_t ld) const {
  copy_out(channel, copies_, rows_);
  split_tiles(rows_, ld_, runs_, longest_, to, ld);
}

TilePixels::TilePixels(const Windows& pixels, std::int64_t first, std::int64_t count,
                       std::int64_t width) {
  const WindowAxis &ys = pixels.y, &xs = pixels.x;
  for_each_image(pixels, first, count, [&](const ImageRun& run) {
    const std::int64_t image = run.image * pixels.channels * pixels.plane();
    for (std::int64_t done = 0; done < run.count;) {
      const std::int64_t row = (run.pixel + done) / xs.result, x = (run.pixel + done) % xs.result;
      const std::int64_t length = std::min(xs.result - x, run.count - done);
      for (std::int64_t y = 2 * row; y < std::min(2 * row + 2, ys.size); ++y) {
        copies_.push_back({image + y * xs.size + 2 * x,
                           (y - 2 * row) * 2 * width + 2 * (run.column + done),
                           std::min(2 * length, xs.size - 2 * x)});
      }
      done += length;
    }
  });
}

void TilePixels::take(const float* channel, float* rows) const { copy_out(channel, copies_, rows); }
void TilePixels::put(const float* rows, float* channel) const { copy_in(rows, copies_, channel); }

}  // namespace loom::ops
