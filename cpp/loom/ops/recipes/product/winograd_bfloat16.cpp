// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/winograd_bfloat16.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/gemm/matrix_unit.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/pixel_rows.h"
#include "loom/ops/recipes/product/winograd_bfloat16_tiles.h"
#include "loom/ops/recipes/product/winograd_last.h"

#include <algorithm>

namespace loom::ops {
namespace {

using c10::BFloat16;

constexpr std::int64_t kPoints = kWidePoints, kSide = kWideResult;
// Channels whose weights a block transforms that does nothing else.
constexpr std::int64_t kWeightRows = 16;
// Tiles that are multiplied at a time.
constexpr std::int64_t kMostTiles = 64;
// Tiles of a block that does nothing but transform them, and channels whose weights are
// multiplied at a time.
constexpr std::int64_t kFewTiles = 8, kPanelChannels = 128;
// Blocks come in multiples of it: cores share them evenly.
constexpr std::int64_t kEvenBlocks = 4;
// Elements of tiles that are transformed before any is multiplied (30 MB).
constexpr std::int64_t kMostShared = (30 << 20) / (kPoints * sizeof(float));
// Fewer channels or filters do not make up for the transforms; more do not fit into the last cache
// when they are transformed all at once.
constexpr std::int64_t kFewest = 16, kMost = 512, kMostByPanels = 2048;

const Scratch t_weights, t_taps, t_points, t_products, t_pixels, t_shared, t_panel;

struct Problem {
  PixelProblem real;
  PixelProblem tiles;  ///< with wide_tiles()
  bool turned;

  [[nodiscard]] std::int64_t channels() const noexcept { return real.channels(); }
  [[nodiscard]] std::int64_t filters() const noexcept { return real.filters; }
  [[nodiscard]] Blocks panels() const noexcept { return {filters(), kPanel}; }
  /// Tiles of an image.
  [[nodiscard]] std::int64_t down() const noexcept { return tiles.windows.y.result; }
  [[nodiscard]] std::int64_t across() const noexcept { return tiles.windows.x.result; }
  [[nodiscard]] std::int64_t weights_step() const noexcept { return channels() * kPanel + kLine; }
  [[nodiscard]] WeightView<std::uint16_t> weights() const noexcept {
    return {bits(real.weights), filters(), channels(), turned, real.weights_last};
  }
  [[nodiscard]] Convolution<simd::BFloat16> direct() const noexcept { return real.direct(turned); }
};

/// Tiles side by side.
struct TileRun {
  std::int64_t image, row, column, count;
};

// taps[(channel * kTaps + tap) * filters + filter], until the thread's next call.
const BFloat16* take_taps(const Problem& p, Blocks::Range channels, Blocks::Range filters) {
  BFloat16* const taps = t_taps.get<BFloat16>(channels.count() * kTaps * filters.count());
  take_taps(p.weights(), channels, filters, bits(taps));
  return taps;
}

/// Tiles of the images as [point][tile][channel].
struct Points {
  float* data;
  std::int64_t ld, step;

  Points(float* memory, std::int64_t tiles, std::int64_t channels)
      : data(memory), ld(channels + kLine), step(size(tiles, channels) / kPoints) {}
  [[nodiscard]] static std::int64_t size(std::int64_t tiles, std::int64_t channels) {
    return kPoints * (tiles * (channels + kLine) + kLine);
  }
};

// Weights of some channels and a panel of filters as [point][channel][filter], `step` elements from
// one point to the next.
void transform_weights(const Problem& p, Blocks::Range channels, Blocks::Range filters, float* to,
                       std::int64_t step) {
  const BFloat16* taps = take_taps(p, channels, filters);
  for (std::int64_t c = 0; c < channels.count(); ++c) {
    kernels::conv::wide_taps_to_points(stored(taps + c * kTaps * filters.count()), filters.count(),
                                       p.turned, to + c * kPanel, step);
  }
}

// Tiles [first, last) of a row, the first of which becomes tile `at`.
void transform_tiles(const Problem& p, const ImageRows& pixels, std::int64_t top,
                     Blocks::Range tiles, const Points& to, std::int64_t at) {
  const std::int64_t row_step = p.tiles.windows.x.seen() * p.channels();
  for (std::int64_t i = 0; i < tiles.count(); ++i) {
    kernels::conv::wide_tile_to_points(stored(pixels.pixel(top, (tiles.first + i) * kSide)),
                                       row_step, p.channels(), to.data + (at + i) * to.ld, to.step);
  }
}

/// Puts products, [point][tile][filter], into the result.
class Results {
 public:
  /// `most`: tiles at a time.
  Results(const Grid& grid, const Problem& p, std::int64_t most)
      : grid_(grid), p_(p), most_(most) {}

  [[nodiscard]] std::int64_t step() const noexcept { return most_ * kPanel + kLine; }
  [[nodiscard]] float* products() const { return t_products.get<float>(kPoints * step()); }

  void put(const TileRun& run, const float* products, Blocks::Range filters) const {
    const WindowAxis &ys = p_.real.windows.y, &xs = p_.real.windows.x;
    const std::int64_t y = run.row * kSide, x = run.column * kSide, count = filters.count();
    const std::int64_t rows = std::min(kSide, ys.result - y);
    const std::int64_t columns = std::min(run.count * kSide, xs.result - x);
    const bool last = p_.real.last();
    BFloat16* const to = p_.real.result_at(run.image, y * xs.result + x, filters.first);
    BFloat16* const made = last ? to : t_pixels.get<BFloat16>(kSide * most_ * kSide * kPanel);
    const std::int64_t pixel_step = last ? p_.filters() : kPanel;
    const std::int64_t row_step = (last ? xs.result : columns) * pixel_step;
    const BFloat16* bias = p_.real.bias != nullptr ? p_.real.bias + filters.first : nullptr;
    bool finite = true;
    for (std::int64_t i = 0; i < run.count; ++i) {
      const kernels::conv::WidePixels pixels{stored(made + i * kSide * pixel_step), row_step,
                                             pixel_step, rows,
                                             std::min(kSide, columns - i * kSide)};
      finite &= kernels::conv::wide_products_to_pixels(products + i * kPanel, step(), count,
                                                       stored(bias), pixels);
    }
    const std::int64_t plane = p_.real.windows.result_plane();
    const bool whole = columns == xs.result;
    for (std::int64_t r = 0; r < (whole ? 1 : rows); ++r) {
      const std::int64_t pixel = (y + r) * xs.result + x, pixels = whole ? rows * columns : columns;
      const std::int64_t counted = run.image * plane + pixel;
      if (!last) {
        transpose(pixels, count, bits(made + r * row_step), kPanel, bits(to + r * xs.result),
                  plane);
      }
      if (!finite) p_.direct().mend({counted, counted + pixels}, filters);
      if (last) {
        grid_.finish(counted, pixels, filters.first, count);
      } else {
        grid_.finish(run.image * p_.filters() + filters.first, count, pixel, pixels);
      }
    }
  }

 private:
  const Grid& grid_;
  const Problem& p_;
  const std::int64_t most_;
};

/// Some rows of tiles, counted through all images, with all filters.
class TileRows {
 public:
  TileRows(const Grid& grid, const Problem& p, const float* weights, std::int64_t most)
      : p_(p),
        weights_(weights),
        most_(most),
        results_(grid, p, most),
        points_(t_points.get<float>(Points::size(most, p.channels())), most, p.channels()) {}

  void run(Blocks::Range rows) {
    for_each_tile_row(p_.tiles, rows, [&](auto... row) { take(row...); });
    multiply();
  }

 private:
  // A row of tiles; as many as are wanted are multiplied.
  void take(std::int64_t image, std::int64_t row, const ImageRows& pixels, std::int64_t top) {
    for (std::int64_t column = 0; column < p_.across();) {
      const std::int64_t count = std::min(p_.across() - column, most_ - tiles_);
      transform_tiles(p_, pixels, top, {column, column + count}, points_, tiles_);
      runs_[run_count_++] = {image, row, column, count};
      tiles_ += count;
      column += count;
      if (tiles_ == most_) multiply();
    }
  }

  void multiply() {
    if (tiles_ == 0) return;
    float* products = results_.products();
    for (std::int64_t panel = 0; panel < p_.panels().count(); ++panel) {
      const Blocks::Range filters = p_.panels()[panel];
      const float* right = weights_ + panel * kPoints * p_.weights_step();
      for (std::int64_t point = 0; point < kPoints; ++point) {
        multiply_rows(
            {points_.data + point * points_.step, tiles_, p_.channels(), points_.ld, 1},
            {right + point * p_.weights_step(), p_.channels(), filters.count(), kPanel, 1},
            products + point * results_.step(), kPanel, false);
      }
      const float* from = products;
      for (std::int64_t i = 0; i < run_count_; ++i) {
        results_.put(runs_[i], from, filters);
        from += runs_[i].count * kPanel;
      }
    }
    tiles_ = run_count_ = 0;
  }

  const Problem& p_;
  const float* const weights_;
  const std::int64_t most_;
  const Results results_;
  const Points points_;
  std::int64_t tiles_ = 0, run_count_ = 0;
  TileRun runs_[kMostTiles];
};

// All weights as [panel of filters][point][channel][filter], then blocks of tiles.
void run_by_tiles(Grid& grid, const Problem& p) {
  float* weights = t_weights.get<float>(p.panels().count() * kPoints * p.weights_step());
  const Blocks channels(p.channels(), kWeightRows);
  grid.run_by_any(p.panels().count() * channels.count(), [&](std::int64_t index) {
    const Blocks::Range some = channels[index % channels.count()];
    const std::int64_t panel = index / channels.count();
    transform_weights(p, some, p.panels()[panel],
                      weights + panel * kPoints * p.weights_step() + some.first * kPanel,
                      p.weights_step());
  });
  const std::int64_t all = p.real.windows.images * p.down();
  const std::int64_t wanted =
      ceil_div(ceil_div(all * p.across(), kMostTiles), kEvenBlocks) * kEvenBlocks;
  const Blocks blocks(all, ceil_div(all, wanted));
  const std::int64_t most = std::min(blocks[0].count() * p.across(), kMostTiles);
  grid.run_by_any(blocks.count(),
                  [&](std::int64_t index) { TileRows(grid, p, weights, most).run(blocks[index]); });
}

// All tiles, then blocks with a panel of filters for some of them, which transform the weights that
// they need, some channels at a time: those stay near.
void run_by_panels(Grid& grid, const Problem& p) {
  const std::int64_t across = p.across(), all = p.real.windows.images * p.down();
  const Blocks groups(all, std::max<std::int64_t>(kMostTiles / across, 1));
  const std::int64_t most = groups[0].count() * across;
  const std::int64_t size = Points::size(most, p.channels());
  float* points = t_shared.get<float>(groups.count() * size);
  const auto points_of = [&](std::int64_t group) {
    return Points(points + group * size, most, p.channels());
  };
  const Blocks rows(all, std::max<std::int64_t>(kFewTiles / across, 1));
  grid.run_by_any(rows.count(), [&](std::int64_t index) {
    for_each_tile_row(
        p.tiles, rows[index],
        [&](std::int64_t image, std::int64_t row, const ImageRows& pixels, std::int64_t top) {
          const std::int64_t counted = image * p.down() + row;
          const std::int64_t group = counted / groups[0].count();
          transform_tiles(p, pixels, top, {0, across}, points_of(group),
                          (counted - groups[group].first) * across);
        });
  });
  const Blocks channels(p.channels(), kPanelChannels);
  grid.run_by_any(p.panels().count() * groups.count(), [&](std::int64_t index) {
    const Blocks::Range filters = p.panels()[index / groups.count()];
    const Blocks::Range tile_rows = groups[index % groups.count()];
    const Points left = points_of(index % groups.count());
    const Results results(grid, p, most);
    float* products = results.products();
    constexpr std::int64_t kStep = kPanelChannels * kPanel + kLine;
    float* weights = t_panel.get<float>(kPoints * kStep);
    for (std::int64_t k = 0; k < channels.count(); ++k) {
      transform_weights(p, channels[k], filters, weights, kStep);
      for (std::int64_t point = 0; point < kPoints; ++point) {
        multiply_rows({left.data + point * left.step + channels[k].first,
                       tile_rows.count() * across, channels[k].count(), left.ld, 1},
                      {weights + point * kStep, channels[k].count(), filters.count(), kPanel, 1},
                      products + point * results.step(), kPanel, k > 0);
      }
    }
    for (std::int64_t row = tile_rows.first; row < tile_rows.last; ++row) {
      results.put({row / p.down(), row % p.down(), 0, across},
                  products + (row - tile_rows.first) * across * kPanel, filters);
    }
  });
}

// Many weights for few tiles: transforming them for each group of tiles is less work than getting
// all of them from a far cache or memory.
bool goes_by_panels(const Windows& windows, std::int64_t filters) {
  const std::int64_t tiles = wide_tiles(windows).pixels(), channels = windows.channels;
  return filters > kPanel && 2 * tiles * tiles <= channels * filters &&
         tiles * channels <= kMostShared;
}

void run(Grid& grid, const Problem& p) {
  (goes_by_panels(p.real.windows, p.filters()) ? run_by_panels : run_by_tiles)(grid, p);
}

bool has_tiles(const Windows& windows) {
  for (const WindowAxis* axis : {&windows.y, &windows.x}) {
    if (axis->kernel != 3 || axis->stride != 1 || axis->dilation != 1 || axis->padding < 0 ||
        axis->padding > 2) {
      return false;
    }
  }
  return true;
}

// The unit is the time that a tile's products take; a pixel's of a plain convolution take an eighth
// of it, if those of bfloat16 are twice as fast as those of float32; on a matrix unit they are up
// to sixteen times as fast. `weights` is what transforming all weights takes, transforms / filters
// what transforming a tile's channels takes, and transforms / channels what its results do.
// Measured on two cores of Zen 5.
bool pays(const Windows& windows, std::int64_t filters, std::int64_t most, double weights,
          double transforms) {
  if (kernels::gemm::bfloat16_is_far_faster()) return false;
  const std::int64_t channels = windows.channels;
  if (std::min(channels, filters) < kFewest || std::max(channels, filters) > most) return false;
  const auto tiles = static_cast<double>(wide_tiles(windows).pixels());
  const double tile =
      1 + transforms / static_cast<double>(channels) + transforms / static_cast<double>(filters);
  return static_cast<double>(windows.pixels()) >= 8 * (tiles * tile + weights);
}

Problem problem(const TensorRef& result, const TensorRef& images, const TensorRef& weights,
                const TensorRef& bias, const Windows& windows, bool weights_last, bool turned) {
  const PixelProblem real{elements<BFloat16>(result),
                          elements<BFloat16>(images),
                          elements<BFloat16>(weights),
                          elements<BFloat16>(bias),
                          weights.sizes()[turned ? 1 : 0],
                          weights_last,
                          windows};
  Problem p{real, real, turned};
  p.tiles.windows = wide_tiles(windows);
  return p;
}

}  // namespace

bool suits_winograd_bfloat16(const Windows& windows, std::int64_t filters) {
  const bool by_panels = goes_by_panels(windows, filters);
  return has_tiles(windows) &&
         pays(windows, filters, by_panels ? kMostByPanels : kMost, by_panels ? 13 : 20, 6);
}

bool suits_winograd_bfloat16_weights(const Windows& windows, std::int64_t filters) {
  return has_tiles(windows) && pays(windows, filters, kMost, 8, 10) &&
         wide_tiles(windows).x.result <= most_group_tiles(windows.channels, filters);
}

void convolve_winograd_bfloat16(Grid& grid, const TensorRef& result, const TensorRef& images,
                                const TensorRef& weights, const TensorRef& bias,
                                const Windows& windows, bool weights_last) {
  run(grid, problem(result, images, weights, bias, windows, weights_last, false));
}

void convolve_winograd_bfloat16_turned(Grid& grid, const TensorRef& result, const TensorRef& images,
                                       const TensorRef& weights, const Windows& windows,
                                       bool weights_last) {
  run(grid, problem(result, images, weights, TensorRef(), windows, weights_last, true));
}

}  // namespace loom::ops
