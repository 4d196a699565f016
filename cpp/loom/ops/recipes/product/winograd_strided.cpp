// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/winograd_strided.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/conv/winograd_strided.h"
#include "loom/kernels/copy/rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd_parts.h"
#include "loom/ops/recipes/product/winograd_tiles.h"

#include <algorithm>

namespace loom::ops {
namespace {

namespace strided = kernels::conv::strided;

using strided::kChunk;
using strided::kFilters;
using strided::kKindCount;
using strided::kKinds;
using strided::kLane;
using strided::kOddSide;
using strided::kPoints;
using strided::kRowPoints;
using strided::kSide;
using strided::kTileStep;

// Elements that a tile sees beside its own.
constexpr std::int64_t kTileMore = 5;
// Products of a tile for each channel and filter.
constexpr std::int64_t kTileProducts = 81;
// Filters whose weights or results are turned together.
constexpr std::int64_t kGroup = 48;
static_assert(kGroup % kFilters == 0 && kGroup % kLane == 0);
// More channels of tiles than L2 has room for; so few filters or tiles that transforms take what
// the products gain (two cores of Zen 5).
constexpr std::int64_t kMostChannels = 8, kFewestFilters = 24, kFewestTiles = 384;
// Channels of a row of tiles: points of more leave L2, and memory for them is kept.
constexpr std::int64_t kLongestRow = 4096;

const Scratch t_weights, t_taps, t_made, t_line, t_rows, t_points, t_pixels;

struct Problem {
  Convolution<float> plain;
  Windows tiles;  ///< tile_results()

  [[nodiscard]] const Windows& windows() const noexcept { return plain.windows; }
  [[nodiscard]] std::int64_t channels() const noexcept { return plain.windows.channels; }
  [[nodiscard]] std::int64_t filters() const noexcept { return plain.filters; }
  /// What a point sums up at most.
  [[nodiscard]] std::int64_t inner() const noexcept { return kKindCount * channels(); }
  /// Tiles of a row.
  [[nodiscard]] std::int64_t across() const noexcept { return tiles.x.result; }
  /// Weights of kFilters filters.
  [[nodiscard]] std::int64_t weights_step() const noexcept { return kPoints * inner() * kFilters; }
};

// All weights as strided::multiply() takes them, one kFilters filters after the other.
const float* transform_weights(Grid& grid, const Problem& p) {
  const std::int64_t channels = p.channels(), inner = p.inner(), all = channels * strided::kTaps;
  float* to = t_weights.get<float>(ceil_div(p.filters(), kFilters) * p.weights_step());
  const Blocks groups(p.filters(), kGroup);
  grid.run_by_any(groups.count(), [&](std::int64_t index) {
    const auto [first, last] = groups[index];
    float* turned = t_taps.get<float>(all * kGroup);
    float* made = t_made.get<float>(kPoints * inner * kLane);
    // Filters that do not exist have zeros.
    if (last - first < kGroup) std::fill_n(turned, all * kGroup, 0.F);
    transpose(last - first, all, p.plain.weights + first * all, all, turned, kGroup);
    const std::int64_t tap_step = (p.plain.weights_last ? channels : 1) * kGroup;
    const std::int64_t channel_step = (p.plain.weights_last ? 1 : strided::kTaps) * kGroup;
    for (std::int64_t f = 0; f < round_up(last - first, kFilters); ++f) {
      for (std::int64_t c = 0; c < channels && f % kLane == 0; ++c) {
        strided::transform_taps(turned + c * channel_step + f, tap_step, made + c * kSide * kLane,
                                channels * kSide * kLane, inner * kSide * kLane);
      }
      float* some = to + (first + f) / kFilters * p.weights_step() + f % kFilters;
      kernels::copy_steps(kPoints * inner, made + f % kLane, kLane, some, kFilters);
    }
  });
  return to;
}

/// Some rows of tiles of one image.
class Band {
 public:
  Band(const Problem& p, std::int64_t image, Blocks::Range rows)
      : p_(p),
        image_(image),
        rows_(rows),
        count_(rows.count() * p.across()),
        line_(round_up(p.across(), kLane)),
        ld_(ceil_div(count_ + kLane, kChunk) / 2 * 2 * kChunk + kChunk),
        points_(t_points.get<float>(kPoints * p.inner() * ld_)) {}

  void run(const float* weights) {
    make_points();
    const Blocks chunks(count_, kChunk);
    for (std::int64_t i = 0; i < chunks.count(); ++i) {
      if (p_.windows().channels_last) {
        make_pixels(weights, chunks[i]);
      } else {
        make_planes(weights, chunks[i]);
      }
    }
  }

 private:
  // [point of x][kind][channel][point of y][tile].
  void make_points() {
    const std::int64_t rows = rows_.count() * kTileStep + kTileMore;
    // The last chunk may have fewer tiles than vectors have room for.
    const std::int64_t rest = ld_ - count_;
    for (std::int64_t i = 1; i <= kPoints * p_.inner(); ++i) {
      std::fill_n(points_ + i * ld_ - rest, rest, 0.F);
    }
    const std::int64_t row_step = kRowPoints * line_;
    float* made = t_rows.get<float>(p_.channels() * rows * row_step);
    for (std::int64_t row = 0; row < rows; ++row) {
      make_row(rows_.first * kTileStep + row - p_.windows().y.padding, made + row * row_step,
               rows * row_step);
    }
    for (std::int64_t r = 0; r < rows_.count(); ++r) {
      for (std::int64_t c = 0; c < p_.channels(); ++c) {
        make_tiles(made + (c * rows + r * kTileStep) * row_step, c, r * p_.across());
      }
    }
  }

  // The points of x of row y of the image, for each channel.
  void make_row(std::int64_t y, float* to, std::int64_t channel_step) const {
    const WindowAxis &ys = p_.windows().y, &xs = p_.windows().x;
    const std::int64_t channels = p_.channels(), plane = p_.windows().plane();
    const std::int64_t length = kTileStep * (p_.across() + 2 * kLane);
    float* line = t_line.get<float>((channels + 1) * length);
    std::fill_n(line, channels * length, 0.F);
    const std::int64_t count = std::min(xs.size, length - xs.padding);
    if (y >= 0 && y < ys.size) {
      const float* from = p_.plain.images + image_ * channels * plane;
      if (p_.windows().channels_last) {
        transpose(count, channels, from + y * xs.size * channels, channels, line + xs.padding,
                  length);
      } else {
        for (std::int64_t c = 0; c < channels; ++c) {
          std::copy_n(from + c * plane + y * xs.size, count, line + c * length + xs.padding);
        }
      }
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      strided::transform_row(line + c * length, p_.across(), to + c * channel_step, line_,
                             line + channels * length);
    }
  }

  // A channel of a row of tiles, from the rows that it sees.
  void make_tiles(const float* rows, std::int64_t channel, std::int64_t tile) const {
    const std::int64_t row_step = kRowPoints * line_;
    for (std::int64_t kind = 0; kind < kKindCount; ++kind) {
      const auto [odd_y, odd_x] = kKinds[kind];
      const auto transform =
          odd_y == 0 ? strided::transform_even_rows : strided::transform_odd_rows;
      const float* from = rows + odd_y * row_step + odd_x * kSide * line_;
      for (std::int64_t x = 0; x < (odd_x == 0 ? kSide : kOddSide); ++x) {
        const std::int64_t to = x * p_.inner() + kind * p_.channels() + channel;
        transform(from + x * line_, 2 * row_step, p_.across(), points_ + to * kSide * ld_ + tile,
                  ld_);
      }
    }
  }

  // kFilters filters of a chunk, of which some may not exist.
  [[nodiscard]] bool multiply(const float* weights, std::int64_t filter, std::int64_t tile,
                              const strided::Pixels& to) const {
    float bias[kFilters] = {};
    if (p_.plain.bias != nullptr) {
      std::copy_n(p_.plain.bias + filter, std::min(kFilters, p_.filters() - filter), bias);
    }
    return strided::multiply(points_ + tile, ld_, weights + filter / kFilters * p_.weights_step(),
                             p_.channels(), bias, to);
  }

  /// Tiles of the band as they are counted through all images.
  [[nodiscard]] Blocks::Range counted(Blocks::Range tiles) const {
    const std::int64_t first = (image_ * p_.tiles.y.result + rows_.first) * p_.across();
    return {first + tiles.first, first + tiles.last};
  }

  void make_planes(const float* weights, Blocks::Range tiles) const {
    constexpr std::int64_t kStep = kTilePixels * kChunk;
    const TilePixels pixels(p_.tiles, counted(tiles).first, tiles.count(), kChunk);
    float* made = t_pixels.get<float>(kFilters * kStep);
    const Blocks filters(p_.filters(), kFilters);
    for (std::int64_t i = 0; i < filters.count(); ++i) {
      const auto [first, last] = filters[i];
      const bool finite = multiply(weights, first, tiles.first, {made, kStep, 2 * kChunk, true, 1});
      for (std::int64_t f = first; f < last; ++f) {
        pixels.put(made + (f - first) * kStep, p_.plain.result + f * p_.windows().result_plane());
      }
      if (!finite) p_.plain.mend_tiles(p_.tiles, 2, counted(tiles), filters[i]);
    }
  }

  void make_pixels(const float* weights, Blocks::Range tiles) const {
    constexpr std::int64_t kStep = kGroup * kChunk + kLine;
    float* made = t_pixels.get<float>(kTilePixels * kStep);
    const Blocks groups(p_.filters(), kGroup);
    for (std::int64_t i = 0; i < groups.count(); ++i) {
      const Blocks::Range filters = groups[i];
      bool finite = true;
      for (std::int64_t f = 0; f < filters.count(); f += kFilters) {
        finite &= multiply(weights, filters.first + f, tiles.first,
                           {made + f * kChunk, kChunk, 2 * kStep, false, kStep});
      }
      put_pixels(made, kStep, tiles, filters);
      if (!finite) p_.plain.mend_tiles(p_.tiles, 2, counted(tiles), filters);
    }
  }

  // made[(2 * y + x) * step + filter * kChunk + tile], to pixels with their filters.
  void put_pixels(const float* made, std::int64_t step, Blocks::Range tiles,
                  Blocks::Range filters) const {
    const WindowAxis &ys = p_.windows().y, &xs = p_.windows().x;
    for (std::int64_t tile = tiles.first; tile < tiles.last;) {
      const std::int64_t row = rows_.first + tile / p_.across(), column = tile % p_.across();
      const std::int64_t count = std::min(tiles.last - tile, p_.across() - column);
      for (std::int64_t i = 0; i < kTilePixels; ++i) {
        const std::int64_t y = 2 * row + i / 2, x = 2 * column + i % 2;
        if (y >= ys.result) continue;
        float* to = p_.plain.result + ((image_ * ys.result + y) * xs.result + x) * p_.filters() +
                    filters.first;
        transpose(filters.count(), std::min(count, half(xs.result - x)),
                  made + i * step + tile - tiles.first, kChunk, to, 2 * p_.filters());
      }
      tile += count;
    }
  }

  const Problem& p_;
  const std::int64_t image_;
  const Blocks::Range rows_;
  const std::int64_t count_;  // tiles
  const std::int64_t line_;   // a row of tiles in whole vectors
  const std::int64_t ld_;     // an odd number of chunks: points do not meet in the same sets
  float* const points_;
};

// Rows of tiles for each band, such that few chunks have tiles that do not exist.
Blocks bands_of(const Problem& p) {
  const double row = work(p.across(), kTileProducts * p.channels(), p.filters());
  const std::int64_t most = ops::bands_of(p.tiles, row, kBlockWork)[0].count();
  const auto chunks = [&](const Blocks& bands) {
    const std::int64_t last = bands[bands.count() - 1].count();
    return (bands.count() - 1) * ceil_div(bands[0].count() * p.across(), kChunk) +
           ceil_div(last * p.across(), kChunk);
  };
  Blocks best(p.tiles.y.result, most);
  for (std::int64_t rows = most - 1; 2 * rows > most; --rows) {
    const Blocks bands(p.tiles.y.result, rows);
    if (chunks(bands) < chunks(best)) best = bands;
  }
  return best;
}

}  // namespace

bool suits_winograd_strided(const Windows& windows, std::int64_t filters) {
  if (!strided::multiply.available()) return false;
  for (const WindowAxis* axis : {&windows.y, &windows.x}) {
    if (axis->kernel != strided::kKernel || axis->stride != 2 || axis->dilation != 1 ||
        axis->padding >= strided::kKernel) {
      return false;
    }
  }
  const Windows tiles = tile_results(windows, filters);
  return windows.channels <= kMostChannels && filters >= kFewestFilters &&
         tiles.pixels() >= kFewestTiles && tiles.x.result * windows.channels <= kLongestRow;
}

void convolve_winograd_strided(Grid& grid, const TensorRef& result, const TensorRef& images,
                               const TensorRef& weights, const TensorRef& bias,
                               const Windows& windows, bool weights_last) {
  const std::int64_t filters = weights.sizes()[0];
  const Problem p{{elements<float>(result), elements<float>(images), elements<float>(weights),
                   elements<float>(bias), filters, false, weights_last, windows},
                  tile_results(windows, filters)};
  const float* transformed = transform_weights(grid, p);
  const Blocks bands = bands_of(p);
  const std::int64_t width = windows.x.result;
  grid.run_by_any(windows.images * bands.count(), [&](std::int64_t index) {
    const std::int64_t image = index / bands.count();
    const Blocks::Range rows = bands[index % bands.count()];
    Band(p, image, rows).run(transformed);
    const std::int64_t first = 2 * rows.first * width;
    const std::int64_t pixels = std::min(2 * rows.last, windows.y.result) * width - first;
    if (windows.channels_last) {
      grid.finish(image * windows.result_plane() + first, pixels, 0, filters);
    } else {
      grid.finish(image * filters, filters, first, pixels);
    }
  });
}

}  // namespace loom::ops
