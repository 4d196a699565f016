// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <vector>

namespace loom::ops {
namespace {

// Pixels that a block of the weights' gradient takes at a time.
constexpr std::int64_t kPixelsAtOnce = 512;
// Images of so many pixels are taken one by one; smaller ones have their gradients put together.
constexpr std::int64_t kLargePlane = 256;
// Elements that are worth handing to another core to copy.
constexpr std::int64_t kCopied = 64 * 1024;
// A cache line more, so that rows do not all begin in the same set of the cache.
constexpr std::int64_t kLine = 16;

const Scratch t_shared, t_columns, t_turned;

/// Ranges of pixels whose columns are made together, and their columns.
struct PixelRanges {
  std::vector<Blocks::Range> ranges;
  std::vector<Columns> columns;
};

PixelRanges pixel_ranges(const Windows& windows) {
  PixelRanges made;
  const std::int64_t plane = windows.result_plane();
  const std::int64_t stretch = plane >= kLargePlane ? plane : windows.pixels();
  for (std::int64_t begin = 0; begin < windows.pixels(); begin += stretch) {
    for (std::int64_t at = 0; at < stretch; at += kPixelsAtOnce) {
      const std::int64_t count = std::min(kPixelsAtOnce, stretch - at);
      made.ranges.push_back({begin + at, begin + at + count});
      made.columns.emplace_back(windows, begin + at, count);
    }
  }
  return made;
}

// gradient[filter][pixel] of all images: in place if there is one, or images are large.
struct GradientRows {
  const float* data;
  std::int64_t filters, plane, ld;
  bool packed;

  [[nodiscard]] MatrixView<const float> part(std::int64_t filter, std::int64_t rows,
                                             Blocks::Range pixels) const {
    const std::int64_t first =
        packed ? pixels.first : pixels.first / plane * filters * plane + pixels.first % plane;
    return {data + filter * ld + first, rows, pixels.count(), ld, 1};
  }
};

GradientRows gradient_rows(Grid& grid, const float* gradient, std::int64_t filters,
                           const Windows& windows) {
  const std::int64_t plane = windows.result_plane(), pixels = windows.pixels();
  if (windows.images == 1 || plane >= kLargePlane) return {gradient, filters, plane, plane, false};
  const std::int64_t ld = pixels + kLine;
  float* to = t_shared.get<float>(filters * ld);
  const Blocks blocks(filters, std::max<std::int64_t>(kCopied / pixels, 1));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const auto [first, last] = blocks[index];
    for (std::int64_t image = 0; image < windows.images; ++image) {
      for (std::int64_t f = first; f < last; ++f) {
        std::copy_n(gradient + (image * filters + f) * plane, plane, to + f * ld + image * plane);
      }
    }
  });
  return {to, filters, plane, ld, true};
}

}  // namespace

void make_panels(Grid& grid, const Windows& windows, const float* images, float* to) {
  const std::int64_t pixels = windows.pixels(), inner = windows.rows();
  const Blocks panels(pixels, kPanel);
  const Blocks rows(inner, std::max<std::int64_t>(kCopied / std::min(pixels, kPanel), 1));
  grid.run_by_any(panels.count() * rows.count(), [&](std::int64_t index) {
    const std::int64_t panel = index / rows.count();
    const Blocks::Range pixel = panels[panel], row = rows[index % rows.count()];
    Columns(windows, pixel.first, pixel.count())
        .make(images, row.first, row.count(), to + (panel * inner + row.first) * kPanel, kPanel);
  });
}

// A block has some columns of the result: rows of what the pixels see, turned.
void convolve_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                              const TensorRef& images, const Windows& windows) {
  const std::int64_t filters = result.sizes()[0], inner = windows.rows();
  const GradientRows left = gradient_rows(grid, elements<float>(gradient), filters, windows);
  const PixelRanges pixels = pixel_ranges(windows);
  const Blocks columns(inner, kPanel);
  // Filters are cut where there are too few columns to share: columns are made again there.
  const Blocks rows(filters, columns.count() >= 6 || filters < kTileRows
                                 ? filters
                                 : round_up(ceil_div(filters, 2), 16));
  grid.run_by_any(columns.count() * rows.count(), [&](std::int64_t index) {
    const auto [first, last] = columns[index / rows.count()];
    const auto [begin, end] = rows[index % rows.count()];
    const std::int64_t width = last - first;
    bool add = false;
    for (std::size_t i = 0; i < pixels.ranges.size(); ++i) {
      const Blocks::Range range = pixels.ranges[i];
      const std::int64_t count = range.count(), ld = count + kLine;
      float* made = t_columns.get<float>(kPanel * (kPixelsAtOnce + kLine));
      float* turned = t_turned.get<float>(kPixelsAtOnce * kPanel);
      pixels.columns[i].make(elements<float>(images), first, width, made, ld);
      transpose(width, count, made, ld, turned, kPanel);
      for (std::int64_t f = begin; f < end; f += kTileRows) {
        multiply_rows(left.part(f, std::min(kTileRows, end - f), range),
                      {turned, count, width, kPanel, 1},
                      elements<float>(result) + f * inner + first, inner, add);
      }
      add = true;
    }
  });
}

}  // namespace loom::ops
