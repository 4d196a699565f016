// SPDX-License-Identifier: BSD-3-Clause
// The gradient of the weights: the transposed form of the algorithm. Tiles of the images and of the
// result's gradient are transformed, 36 products sum over the tiles, and what they make is turned
// into 3x3 weights.
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd_bfloat16.h"
#include "loom/ops/recipes/product/winograd_bfloat16_tiles.h"
#include "loom/ops/recipes/product/winograd_parts.h"

#include <algorithm>

namespace loom::ops {
namespace {

using c10::BFloat16;

constexpr std::int64_t kPoints = kWidePoints, kSide = kWideResult;
// Tiles that a block transforms, if rows of tiles are not longer.
constexpr std::int64_t kBlockTiles = 32;
// Weights that a block makes at the end.
constexpr std::int64_t kWeights = 4096;

const Scratch t_shared, t_points, t_taps;

/// A group of tiles: of the gradient [point][filter][tile], of the images [point][tile][channel],
/// and the sums of products so far, [point][filter][channel].
struct Group {
  std::int64_t filters, channels;
  std::int64_t most = 0;  ///< tiles
  float *gradient = nullptr, *images = nullptr, *sums = nullptr;

  [[nodiscard]] std::int64_t gradient_ld() const noexcept { return most + kLine; }
  [[nodiscard]] std::int64_t gradient_step() const noexcept {
    return filters * gradient_ld() + kLine;
  }
  [[nodiscard]] std::int64_t images_ld() const noexcept { return channels + kLine; }
  [[nodiscard]] std::int64_t images_step() const noexcept { return most * images_ld() + kLine; }
  [[nodiscard]] std::int64_t sums_step() const noexcept { return filters * channels + kLine; }
};

/// Tile `at` of the group is the first one.
void make_images(const Group& group, const PixelProblem& images, Blocks::Range rows,
                 std::int64_t at) {
  const WindowAxis& x = images.windows.x;
  float* to = group.images + at * group.images_ld();
  for_each_tile_row(images, rows,
                    [&](std::int64_t, std::int64_t, const ImageRows& pixels, std::int64_t top) {
                      for (std::int64_t i = 0; i < x.result; ++i, to += group.images_ld()) {
                        kernels::conv::wide_tile_to_points(stored(pixels.pixel(top, i * kSide)),
                                                           x.seen() * group.channels,
                                                           group.channels, to, group.images_step());
                      }
                    });
}

// A panel of filters at a time, so that what is turned is in L2.
void make_gradient(const Group& group, const PixelProblem& gradient, Blocks::Range rows,
                   std::int64_t at) {
  const WindowAxis& x = gradient.windows.x;
  const std::int64_t most = std::min(kBlockTiles, x.result);
  const std::int64_t step = most * kPanel + kLine;
  float* points = t_points.get<float>(kPoints * step);
  const auto turn = [&](const ImageRows& pixels, std::int64_t top, Blocks::Range tiles) {
    const Blocks panels(group.filters, kPanel);
    for (std::int64_t panel = 0; panel < panels.count(); ++panel) {
      const Blocks::Range filters = panels[panel];
      for (std::int64_t i = tiles.first; i < tiles.last; ++i) {
        kernels::conv::wide_pixels_to_points(
            stored(pixels.pixel(top, i * kSide) + filters.first), x.seen() * group.filters,
            group.filters, filters.count(), points + (i - tiles.first) * kPanel, step);
      }
      for (std::int64_t point = 0; point < kPoints; ++point) {
        transpose(tiles.count(), filters.count(), points + point * step, kPanel,
                  group.gradient + point * group.gradient_step() +
                      filters.first * group.gradient_ld() + at + tiles.first,
                  group.gradient_ld());
      }
    }
  };
  for_each_tile_row(gradient, rows,
                    [&](std::int64_t, std::int64_t, const ImageRows& pixels, std::int64_t top) {
                      const Blocks runs(x.result, most);
                      for (std::int64_t i = 0; i < runs.count(); ++i) turn(pixels, top, runs[i]);
                      at += x.result;
                    });
}

void multiply_group(Grid& grid, const Group& group, std::int64_t tiles, bool add) {
  const Blocks filters(group.filters, kTileRows), channels(group.channels, kPanel);
  grid.run_by_any(kPoints * channels.count() * filters.count(), [&](std::int64_t index) {
    const std::int64_t point = index % kPoints;
    const auto [channel, end] = channels[index / kPoints % channels.count()];
    const Blocks::Range rows = filters[index / (kPoints * channels.count())];
    multiply_rows(
        {group.gradient + point * group.gradient_step() + rows.first * group.gradient_ld(),
         rows.count(), tiles, group.gradient_ld(), 1},
        {group.images + point * group.images_step() + channel, tiles, end - channel,
         group.images_ld(), 1},
        group.sums + point * group.sums_step() + rows.first * group.channels + channel,
        group.channels, add);
  });
}

/// `last`: channels are last in the weights.
void finish(Grid& grid, const Group& group, BFloat16* result, bool last) {
  const std::int64_t channels = group.channels;
  const Blocks filters(group.filters, std::max<std::int64_t>(kWeights / channels, 1));
  grid.run_by_any(filters.count(), [&](std::int64_t index) {
    BFloat16* taps = last ? nullptr : t_taps.get<BFloat16>(kTaps * channels);
    for (std::int64_t f = filters[index].first; f < filters[index].last; ++f) {
      BFloat16* to = result + f * channels * kTaps;
      kernels::conv::wide_sums_to_taps(group.sums + f * channels, group.sums_step(), channels,
                                       stored(last ? to : taps));
      if (!last) transpose(kTaps, channels, bits(taps), channels, bits(to), kTaps);
    }
  });
}

PixelProblem tiles_of(const TensorRef& tensor, const Windows& tiles) {
  PixelProblem p{};
  p.images = reinterpret_cast<const BFloat16*>(tensor.data());
  p.windows = tiles;
  return p;
}

}  // namespace

void winograd_bfloat16_weight_gradient(Grid& grid, const TensorRef& result,
                                       const TensorRef& gradient, const TensorRef& images,
                                       const Windows& windows, bool weights_last) {
  const std::int64_t filters = result.sizes()[0];
  const PixelProblem seen = tiles_of(images, wide_tiles(windows));
  const PixelProblem made = tiles_of(gradient, wide_results(windows, filters));
  const std::int64_t across = seen.windows.x.result;
  Group group{filters, windows.channels};
  const Blocks groups(windows.images * seen.windows.y.result,
                      most_group_tiles(group.channels, group.filters) / across);
  group.most = groups[0].count() * across;

  const std::int64_t for_gradient = kPoints * group.gradient_step();
  const std::int64_t for_images = kPoints * group.images_step();
  group.gradient = t_shared.get<float>(for_gradient + for_images + kPoints * group.sums_step());
  group.images = group.gradient + for_gradient;
  group.sums = group.images + for_images;

  for (std::int64_t g = 0; g < groups.count(); ++g) {
    const Blocks blocks(groups[g].count(), std::max<std::int64_t>(kBlockTiles / across, 1));
    grid.run_by_any(2 * blocks.count(), [&](std::int64_t index) {
      const Blocks::Range rows = blocks[index / 2];
      const Blocks::Range counted{groups[g].first + rows.first, groups[g].first + rows.last};
      if (index % 2 == 0) {
        make_images(group, seen, counted, rows.first * across);
      } else {
        make_gradient(group, made, counted, rows.first * across);
      }
    });
    multiply_group(grid, group, groups[g].count() * across, g > 0);
  }
  finish(grid, group, reinterpret_cast<BFloat16*>(result.data()), weights_last);
}

}  // namespace loom::ops
