// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/winograd.h"

#include "loom/kernels/conv/mending.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd_parts.h"
#include "loom/ops/recipes/product/winograd_tiles.h"

#include <algorithm>

namespace loom::ops {
namespace {

using kernels::conv::products_to_rows;
using kernels::conv::taps_to_points;
using kernels::conv::tiles_to_points;

constexpr std::int64_t kPoints = kTilePoints;
// Fewer channels or filters do not make up for the transforms, more would have them leave the
// caches.
constexpr std::int64_t kFewest = 16, kMost = 512;
// With fewer tiles transforming the weights costs what is gained.
constexpr std::int64_t kFewestTiles = 64;
// From so many tiles on a block has kPanel of them, else kNarrow.
constexpr std::int64_t kManyTiles = 512;
constexpr std::int64_t kNarrow = 32;
// Weights that a block transforms.
constexpr std::int64_t kWeights = 4096;

const Scratch t_weights, t_taps, t_tiles, t_points, t_products, t_results;

using Problem = Convolution<float>;

// All weights as [point][filter][channel], not yet turned.
const float* transform_all_weights(Grid& grid, const Problem& p) {
  const std::int64_t channels = p.channels(), step = p.filters * channels + kLine;
  float* to = t_weights.get<float>(kPoints * step);
  const Blocks filters(p.filters, std::max<std::int64_t>(kWeights / channels, 1));
  grid.run_by_any(filters.count(), [&](std::int64_t index) {
    float* taps = t_taps.get<float>(kTaps * channels);
    for (std::int64_t f = filters[index].first; f < filters[index].last; ++f) {
      if (p.turned) {
        transpose(channels, kTaps, p.weights + f * kTaps, p.filters * kTaps, taps, channels);
      } else {
        transpose(channels, kTaps, p.weights + f * channels * kTaps, kTaps, taps, channels);
      }
      taps_to_points(taps, channels, to + f * channels, step);
    }
  });
  return to;
}

// Returns false if there is an infinity or NaN.
bool put_products(const Problem& p, const TilePixels& pixels, const float* products,
                  std::int64_t width, std::int64_t filter, std::int64_t filters) {
  bool finite = true;
  float* rows = t_results.get<float>(kTilePixels * width);
  const std::int64_t plane = p.windows.result_plane();
  for (std::int64_t f = 0; f < filters; ++f) {
    products_to_rows(products + f * width, kTileRows * width + kLine, width,
                     p.bias != nullptr ? p.bias[filter + f] : 0.F, rows);
    pixels.put(rows, p.result + (filter + f) * plane);
    finite = finite && kernels::conv::all_finite<float>(rows, kTilePixels * width);
  }
  return finite;
}

void run(Grid& grid, const Problem& p) {
  const std::int64_t channels = p.channels(), step = p.filters * channels + kLine;
  const float* weights = transform_all_weights(grid, p);
  const Windows tiles = tile_windows(p.windows), pixels = tile_results(p.windows, p.filters);
  const std::int64_t width = tiles.pixels() >= kManyTiles ? kPanel : kNarrow;
  const Blocks blocks(tiles.pixels(), width);
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const auto [first, last] = blocks[index];
    const std::int64_t count = last - first;
    const std::int64_t points_step = channels * width + kLine;
    const std::int64_t products_step = kTileRows * width + kLine;
    float* points = t_points.get<float>(kPoints * points_step);
    make_points(TileInputs(tiles, first, count), count, p.images, p.windows.plane(), channels,
                width, points, points_step, width);
    const TilePixels to(pixels, first, count, width);
    float* products = t_products.get<float>(kPoints * products_step);
    if (count < width) std::fill_n(products, kPoints * products_step, 0.F);
    for (std::int64_t f = 0; f < p.filters; f += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, p.filters - f);
      for (std::int64_t point = 0; point < kPoints; ++point) {
        const float* left = weights + (p.turned ? turned_point(point) : point) * step;
        multiply_rows({left + f * channels, rows, channels, channels, 1},
                      {points + point * points_step, channels, count, width, 1},
                      products + point * products_step, width, false);
      }
      if (put_products(p, to, products, width, f, rows)) continue;
      p.mend_tiles(pixels, 2, {first, last}, {f, f + rows});
    }
  });
}

}  // namespace

Windows tile_windows(const Windows& windows) {
  Windows made = windows;
  for (WindowAxis* axis : {&made.y, &made.x}) {
    *axis = {axis->size, half(axis->result), 4, 2, axis->padding, 1};
  }
  return made;
}

Windows tile_results(const Windows& windows, std::int64_t filters) {
  Windows made = windows;
  made.channels = filters;
  for (WindowAxis* axis : {&made.y, &made.x}) {
    *axis = {axis->result, half(axis->result), 2, 2, 0, 1};
  }
  return made;
}

void make_points(const TileInputs& tiles, std::int64_t count, const float* images,
                 std::int64_t plane, std::int64_t channels, std::int64_t width, float* points,
                 std::int64_t step, std::int64_t ld) {
  const std::int64_t tiles_ld = width + kTileSlack;
  float* made = t_tiles.get<float>(kPoints * tiles_ld);
  for (std::int64_t c = 0; c < channels; ++c) {
    tiles.take(images + c * plane, made, tiles_ld);
    if (count < width) {
      for (std::int64_t i = 0; i < kPoints; ++i) {
        std::fill_n(made + i * tiles_ld + count, width - count, 0.F);
      }
    }
    tiles_to_points(made, tiles_ld, width, points + c * ld, step);
  }
}

bool suits_winograd(const Windows& windows, std::int64_t filters) {
  for (const WindowAxis* axis : {&windows.y, &windows.x}) {
    if (axis->kernel != 3 || axis->stride != 1 || axis->dilation != 1 || axis->padding > 2) {
      return false;
    }
  }
  const std::int64_t channels = windows.channels;
  if (std::min(channels, filters) < kFewest || std::max(channels, filters) > kMost) return false;
  // Tiles that are half empty gain little.
  const std::int64_t tiles = half(windows.y.result) * half(windows.x.result);
  return windows.images * tiles >= kFewestTiles && 20 * tiles <= 6 * windows.result_plane();
}

void convolve_winograd(Grid& grid, const TensorRef& result, const TensorRef& images,
                       const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  run(grid, {elements<float>(result), elements<float>(images), elements<float>(weights),
             elements<float>(bias), weights.sizes()[0], false, false, windows});
}

void convolve_winograd_turned(Grid& grid, const TensorRef& result, const TensorRef& images,
                              const TensorRef& weights, const Windows& windows) {
  run(grid, {elements<float>(result), elements<float>(images), elements<float>(weights), nullptr,
             weights.sizes()[1], true, false, windows});
}

Windows turned_windows(const Windows& windows, std::int64_t filters) {
  Windows made = windows;
  made.channels = filters;
  for (WindowAxis* axis : {&made.y, &made.x}) {
    axis->padding = axis->dilation * (axis->kernel - 1) - axis->padding;
    std::swap(axis->size, axis->result);
  }
  return made;
}

}  // namespace loom::ops
