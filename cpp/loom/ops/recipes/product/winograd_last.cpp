// SPDX-License-Identifier: BSD-3-Clause
// Winograd's algorithm in channels_last: vectors run along channels, so tiles need no turning, and
// results are stored where they belong. Products are [tiles][channels] x [channels][filters].
#include "loom/ops/recipes/product/winograd_last.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd.h"

#include <algorithm>

namespace loom::ops {
namespace {

using kernels::conv::products_to_pixels;
using kernels::conv::taps_to_points;
using kernels::conv::tile_to_points;

constexpr std::int64_t kPoints = kTilePoints;
// With fewer channels or filters the transforms take what the products gain.
constexpr std::int64_t kFewest = 32;
// Channels whose weights a block transforms.
constexpr std::int64_t kWeightRows = 16;
// Blocks come in multiples of it: cores share them evenly.
constexpr std::int64_t kEvenBlocks = 4;

const Scratch t_weights, t_taps, t_zeros, t_beside, t_points, t_products;

struct Problem : Convolution<float> {
  [[nodiscard]] std::int64_t panels() const noexcept { return ceil_div(filters, kPanel); }
  [[nodiscard]] Blocks::Range panel(std::int64_t index) const noexcept {
    return panel_of(filters, index);
  }
  [[nodiscard]] std::int64_t weights_step() const noexcept { return channels() * kPanel + kLine; }
};

// All weights as [panel of filters][point][channel][filter], not yet turned.
const float* transform_all_weights(Grid& grid, const Problem& p) {
  float* made = t_weights.get<float>(p.panels() * kPoints * p.weights_step());
  const WeightView<float> view{p.weights, p.filters, p.channels(), p.turned, p.weights_last};
  const Blocks rows(p.channels(), kWeightRows);
  grid.run_by_any(p.panels() * rows.count(), [&](std::int64_t index) {
    const Blocks::Range channels = rows[index % rows.count()];
    const std::int64_t panel = index / rows.count();
    const Blocks::Range filters = p.panel(panel);
    float* taps = t_taps.get<float>(kWeightRows * kTaps * kPanel);
    take_taps(view, channels, filters, taps);
    float* to = made + panel * kPoints * p.weights_step();
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      taps_to_points(taps, filters.count(), to + c * kPanel, p.weights_step());
      taps += kTaps * filters.count();
    }
  });
  return made;
}

void run(Grid& grid, const Problem& p) {
  const std::int64_t channels = p.channels(), ld = channels + kLine;
  const float* weights = transform_all_weights(grid, p);
  const Windows tiles = tile_windows(p.windows), results = tile_results(p.windows, p.filters);
  const std::int64_t wanted = ceil_div(ceil_div(tiles.pixels(), kPanel), kEvenBlocks) * kEvenBlocks;
  const Blocks blocks(tiles.pixels(), ceil_div(tiles.pixels(), wanted));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const Blocks::Range range = blocks[index];
    const std::int64_t count = range.count();
    const std::int64_t points_step = count * ld + kLine, products_step = count * kPanel + kLine;
    float* points = t_points.get<float>(kPoints * points_step);
    float* products = t_products.get<float>(kPoints * products_step);
    float* zeros = t_zeros.get<float>(std::max(channels, p.filters));
    std::fill_n(zeros, std::max(channels, p.filters), 0.F);
    for_each_tile<4>(tiles, range, p.images, channels, static_cast<const float*>(zeros),
                     [&](std::int64_t i, const float* const* pixels) {
                       tile_to_points(pixels, channels, points + i * ld, points_step);
                     });
    const float* bias = p.bias != nullptr ? p.bias : zeros;
    float* beside = t_beside.get<float>(kPanel);
    for (std::int64_t panel = 0; panel < p.panels(); ++panel) {
      const auto [first, last] = p.panel(panel);
      const std::int64_t width = last - first;
      const float* right = weights + panel * kPoints * p.weights_step();
      for (std::int64_t point = 0; point < kPoints; ++point) {
        const std::int64_t other = p.turned ? turned_point(point) : point;
        multiply_rows({points + point * points_step, count, channels, ld, 1},
                      {right + other * p.weights_step(), channels, width, kPanel, 1},
                      products + point * products_step, kPanel, false);
      }
      bool finite = true;
      for_each_tile<2>(results, range, p.result + first, p.filters, beside,
                       [&](std::int64_t i, float* const* pixels) {
                         finite &= products_to_pixels(products + i * kPanel, products_step, width,
                                                      bias + first, pixels);
                       });
      if (!finite) p.mend_tiles(results, 2, range, {first, last});
    }
  });
}

bool channels_last(const TensorRef& weights) { return weights.strides()[1] == 1; }

}  // namespace

void make_points(const float* const* pixels, std::int64_t channels, float* points,
                 std::int64_t step) {
  tile_to_points(pixels, channels, points, step);
}

bool suits_winograd_last(const Windows& windows, std::int64_t filters) {
  return std::min(windows.channels, filters) >= kFewest && suits_winograd(windows, filters);
}

void convolve_winograd_last(Grid& grid, const TensorRef& result, const TensorRef& images,
                            const TensorRef& weights, const TensorRef& bias,
                            const Windows& windows) {
  run(grid, {{elements<float>(result), elements<float>(images), elements<float>(weights),
              elements<float>(bias), weights.sizes()[0], false, channels_last(weights), windows}});
}

void convolve_winograd_last_turned(Grid& grid, const TensorRef& result, const TensorRef& images,
                                   const TensorRef& weights, const Windows& windows) {
  run(grid, {{elements<float>(result), elements<float>(images), elements<float>(weights), nullptr,
              weights.sizes()[1], true, channels_last(weights), windows}});
}

}  // namespace loom::ops
