// SPDX-License-Identifier: BSD-3-Clause
// The gradient of the weights: the transposed form of the algorithm. Tiles of the images and of the
// result's gradient are transformed, 16 products sum over the tiles, and what they make is turned
// into 3x3 weights.
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd.h"
#include "loom/ops/recipes/product/winograd_last.h"
#include "loom/ops/recipes/product/winograd_parts.h"

#include <algorithm>

namespace loom::ops {
namespace {

using kernels::conv::pixels_to_points;
using kernels::conv::rows_to_points;
using kernels::conv::sums_to_taps;

constexpr std::int64_t kPoints = kTilePoints;
// Tiles that are transformed, then multiplied: they stay in the last cache.
constexpr std::int64_t kGroup = 8 * kPanel;
constexpr std::int64_t kGroupRow = kGroup + kLine;
constexpr std::int64_t kPointsStep = kPanel * kPanel + kLine;
// Weights that a block makes at the end.
constexpr std::int64_t kWeights = 4096;

const Scratch t_shared, t_tiles, t_points, t_taps, t_zeros;

/// A group of tiles: of the gradient [point][filter][tile], of the images [point][panel of
/// channels][tile][channel], and the sums of products so far, [point][filter][channel]. In
/// channels_last tiles of the images have all their channels in a row, [point][tile][channel].
struct Group {
  float *gradient, *images, *sums;
  std::int64_t filters, channels;
  bool last;

  [[nodiscard]] std::int64_t panels() const noexcept { return ceil_div(channels, kPanel); }
  [[nodiscard]] std::int64_t gradient_step() const noexcept { return filters * kGroupRow + kLine; }
  [[nodiscard]] std::int64_t sums_step() const noexcept { return filters * channels + kLine; }
  /// From a tile of the images to the next one, and from a point.
  [[nodiscard]] std::int64_t images_ld() const noexcept { return last ? channels + kLine : kPanel; }
  [[nodiscard]] std::int64_t images_step() const noexcept {
    return last ? kGroup * images_ld() + kLine : panels() * kGroup * kPanel;
  }
  [[nodiscard]] float* panel(std::int64_t point, std::int64_t panel) const noexcept {
    return images + point * images_step() + panel * (last ? kPanel : kGroup * kPanel);
  }
};

const float* make_zeros(std::int64_t count) {
  float* zeros = t_zeros.get<float>(count);
  std::fill_n(zeros, count, 0.F);
  return zeros;
}

void make_images(const Group& group, const Windows& tiles, Blocks::Range range, const float* images,
                 std::int64_t at) {
  const TileInputs inputs(tiles, range.first, range.count());
  const std::int64_t plane = tiles.plane();
  float* points = t_points.get<float>(kPoints * kPointsStep);
  for (std::int64_t panel = 0; panel < group.panels(); ++panel) {
    const std::int64_t first = panel * kPanel, count = std::min(kPanel, group.channels - first);
    make_points(inputs, range.count(), images + first * plane, plane, count, kPanel, points,
                kPointsStep, kPanel);
    for (std::int64_t point = 0; point < kPoints; ++point) {
      transpose(count, kPanel, points + point * kPointsStep, kPanel,
                group.panel(point, panel) + at * kPanel, kPanel);
    }
  }
}

void make_gradient(const Group& group, const Windows& tiles, Blocks::Range range,
                   const float* gradient, std::int64_t at) {
  const TilePixels pixels(tiles, range.first, range.count(), kPanel);
  float* rows = t_tiles.get<float>(kTilePixels * kPanel);
  // What is beside the image counts as zeros, and so do tiles that do not exist.
  std::fill_n(rows, kTilePixels * kPanel, 0.F);
  for (std::int64_t f = 0; f < group.filters; ++f) {
    pixels.take(gradient + f * tiles.plane(), rows);
    rows_to_points(rows, kPanel, group.gradient + f * kGroupRow + at, group.gradient_step());
  }
}

void make_last_images(const Group& group, const Windows& tiles, Blocks::Range range,
                      const float* images, std::int64_t at) {
  const float* zeros = make_zeros(group.channels);
  for_each_tile<4>(tiles, range, images, group.channels, zeros,
                   [&](std::int64_t i, const float* const* pixels) {
                     make_points(pixels, group.channels,
                                 group.images + (at + i) * group.images_ld(), group.images_step());
                   });
}

void make_last_gradient(const Group& group, const Windows& tiles, Blocks::Range range,
                        const float* gradient, std::int64_t at) {
  const float* zeros = make_zeros(group.filters);
  float* points = t_points.get<float>(kPoints * kPointsStep);
  for (std::int64_t panel = 0; panel < ceil_div(group.filters, kPanel); ++panel) {
    const auto [first, last] = panel_of(group.filters, panel);
    for_each_tile<2>(tiles, range, gradient, group.filters, zeros,
                     [&](std::int64_t i, const float* const* pixels) {
                       pixels_to_points(pixels, first, last - first, points + i * kPanel,
                                        kPointsStep);
                     });
    for (std::int64_t point = 0; point < kPoints; ++point) {
      transpose(range.count(), last - first, points + point * kPointsStep, kPanel,
                group.gradient + point * group.gradient_step() + first * kGroupRow + at, kGroupRow);
    }
  }
}

void multiply_group(Grid& grid, const Group& group, std::int64_t tiles, bool add) {
  const Blocks filters(group.filters, kTileRows);
  const std::int64_t panels = group.panels();
  grid.run_by_any(kPoints * panels * filters.count(), [&](std::int64_t index) {
    const std::int64_t point = index % kPoints, panel = index / kPoints % panels;
    const Blocks::Range rows = filters[index / (kPoints * panels)];
    const std::int64_t first = panel * kPanel;
    multiply_rows({group.gradient + point * group.gradient_step() + rows.first * kGroupRow,
                   rows.count(), tiles, kGroupRow, 1},
                  {group.panel(point, panel), tiles, std::min(kPanel, group.channels - first),
                   group.images_ld(), 1},
                  group.sums + point * group.sums_step() + rows.first * group.channels + first,
                  group.channels, add);
  });
}

void finish(Grid& grid, const Group& group, float* result) {
  const std::int64_t channels = group.channels;
  const Blocks filters(group.filters, std::max<std::int64_t>(kWeights / channels, 1));
  grid.run_by_any(filters.count(), [&](std::int64_t index) {
    float* taps = group.last ? nullptr : t_taps.get<float>(kTaps * channels);
    for (std::int64_t f = filters[index].first; f < filters[index].last; ++f) {
      float* to = group.last ? result + f * channels * kTaps : taps;
      sums_to_taps(group.sums + f * channels, group.sums_step(), channels, to);
      if (group.last) continue;
      transpose(kTaps, channels, taps, channels, result + f * channels * kTaps, kTaps);
    }
  });
}

void run(Grid& grid, const TensorRef& result, const TensorRef& gradient, const TensorRef& images,
         const Windows& windows, bool last) {
  Group group{nullptr, nullptr, nullptr, result.sizes()[0], windows.channels, last};
  const std::int64_t for_gradient = kPoints * group.gradient_step();
  const std::int64_t for_images = kPoints * group.images_step();
  group.gradient = t_shared.get<float>(for_gradient + for_images + kPoints * group.sums_step());
  group.images = group.gradient + for_gradient;
  group.sums = group.images + for_images;

  const Windows seen = tile_windows(windows), made = tile_results(windows, group.filters);
  const Blocks groups(seen.pixels(), kGroup);
  for (std::int64_t g = 0; g < groups.count(); ++g) {
    const Blocks panels(groups[g].count(), kPanel);
    grid.run_by_any(2 * panels.count(), [&](std::int64_t index) {
      const Blocks::Range range = panels[index / 2];
      const std::int64_t first = groups[g].first + range.first;
      const Blocks::Range counted{first, first + range.count()};
      if (index % 2 == 0) {
        (last ? make_last_images : make_images)(group, seen, counted, elements<float>(images),
                                                range.first);
      } else {
        (last ? make_last_gradient : make_gradient)(group, made, counted, elements<float>(gradient),
                                                    range.first);
      }
    });
    multiply_group(grid, group, groups[g].count(), g > 0);
  }
  finish(grid, group, elements<float>(result));
}

}  // namespace

void winograd_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                              const TensorRef& images, const Windows& windows) {
  run(grid, result, gradient, images, windows, false);
}

void winograd_last_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                                   const TensorRef& images, const Windows& windows) {
  run(grid, result, gradient, images, windows, true);
}

}  // namespace loom::ops
