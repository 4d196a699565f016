// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/winograd_bfloat16.h"

#include "loom/ops/product/convolve_parts.h"
#include "loom/ops/product/multiply.h"
#include "loom/ops/product/pixel_rows.h"
#include "loom/ops/product/winograd_last.h"
#include "loom/ops/product/winograd_transforms.h"

#include <algorithm>

namespace loom::ops {
namespace {

using c10::BFloat16;

constexpr std::int64_t kPoints = kWidePoints, kSide = kWideResult;
// Channels whose weights a block transforms.
constexpr std::int64_t kWeightRows = 16;
// Tiles that are multiplied at a time.
constexpr std::int64_t kMostTiles = 64;
// Blocks come in multiples of it: cores share them evenly.
constexpr std::int64_t kEvenBlocks = 4;
// Fewer channels or filters do not make up for the transforms; more are not in any cache.
constexpr std::int64_t kFewest = kVectorFloats, kMost = 512;
// Weights are transformed in the time that so many tiles take, and pixels have to be so many a tile
// to be faster than with products of their own; more where transformed weights leave the caches.
constexpr std::int64_t kWeightTiles = 20, kLeastPixels = 9, kLeastPixelsOfMany = 13;
constexpr std::int64_t kManyWeights = 128 << 10;

const Scratch t_weights, t_taps, t_points, t_products, t_pixels, t_tile;

struct Problem {
  PixelProblem real;   ///< the convolution
  PixelProblem whole;  ///< its result rounded up to whole tiles
  bool turned;

  [[nodiscard]] std::int64_t channels() const noexcept { return real.channels(); }
  [[nodiscard]] std::int64_t filters() const noexcept { return real.filters; }
  [[nodiscard]] std::int64_t panels() const noexcept { return parts(filters(), kPanel); }
  /// Tiles of an image.
  [[nodiscard]] std::int64_t down() const noexcept { return whole.windows.y.result / kSide; }
  [[nodiscard]] std::int64_t across() const noexcept { return whole.windows.x.result / kSide; }
  [[nodiscard]] std::int64_t weights_step() const noexcept { return channels() * kPanel + kLine; }
  [[nodiscard]] WeightView<std::uint16_t> weights() const noexcept {
    return {bits(real.weights), filters(), channels(), turned, real.weights_last};
  }
};

/// Tiles side by side.
struct TileRun {
  std::int64_t image, row, column, count;
};

// All weights as [panel of filters][point][channel][filter].
const float* transform_all_weights(Grid& grid, const Problem& p) {
  float* made = t_weights.get<float>(p.panels() * kPoints * p.weights_step());
  const Blocks rows(p.channels(), kWeightRows);
  grid.run_by_any(p.panels() * rows.count(), [&](std::int64_t index) {
    const Blocks::Range channels = rows[index % rows.count()];
    const std::int64_t panel = index / rows.count();
    const Blocks::Range filters = panel_of(p.filters(), panel);
    BFloat16* taps = t_taps.get<BFloat16>(kWeightRows * kTaps * kPanel);
    take_taps(p.weights(), channels, filters, bits(taps));
    float* to = made + panel * kPoints * p.weights_step();
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      transform_wide_taps(taps, filters.count(), p.turned, to + c * kPanel, p.weights_step());
      taps += kTaps * filters.count();
    }
  });
  return made;
}

/// Some rows of tiles, counted through all images.
class TileRows {
 public:
  TileRows(const Grid& grid, const Problem& p, const float* weights, std::int64_t most)
      : grid_(grid),
        p_(p),
        weights_(weights),
        most_(most),
        ld_(p.channels() + kLine),
        points_step_(most * ld_ + kLine),
        products_step_(most * kPanel + kLine),
        points_(t_points.get<float>(kPoints * points_step_)) {}

  void run(Blocks::Range rows) {
    const std::int64_t down = p_.down();
    for (std::int64_t row = rows.first; row < rows.last;) {
      const std::int64_t first = row % down, last = std::min(first + rows.last - row, down);
      take(row / down, first, last);
      row += last - first;
    }
    multiply();
  }

 private:
  // Tiles of one image's rows [first, last); as many as are wanted are multiplied.
  void take(std::int64_t image, std::int64_t first, std::int64_t last) {
    const std::int64_t across = p_.across(), channels = p_.channels();
    const std::int64_t row_step = p_.whole.windows.x.seen() * channels;
    ImageRows rows(p_.whole, image, first * kSide - p_.whole.windows.y.padding,
                   (last - first) * kSide + 2);
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t top = (row - first) * kSide;
      rows.make(top + kWideSide);
      for (std::int64_t column = 0; column < across;) {
        const std::int64_t count = std::min(across - column, most_ - tiles_);
        for (std::int64_t i = 0; i < count; ++i) {
          transform_wide_tile(rows.pixel(top, (column + i) * kSide), row_step, channels,
                              points_ + (tiles_ + i) * ld_, points_step_);
        }
        runs_[run_count_++] = {image, row, column, count};
        tiles_ += count;
        column += count;
        if (tiles_ == most_) multiply();
      }
    }
  }

  void multiply() {
    if (tiles_ == 0) return;
    float* products = t_products.get<float>(kPoints * products_step_);
    for (std::int64_t panel = 0; panel < p_.panels(); ++panel) {
      const Blocks::Range filters = panel_of(p_.filters(), panel);
      const float* right = weights_ + panel * kPoints * p_.weights_step();
      for (std::int64_t point = 0; point < kPoints; ++point) {
        multiply_rows(
            {points_ + point * points_step_, tiles_, p_.channels(), ld_, 1},
            {right + point * p_.weights_step(), p_.channels(), filters.count(), kPanel, 1},
            products + point * products_step_, kPanel, false);
      }
      const float* from = products;
      for (std::int64_t i = 0; i < run_count_; ++i) {
        put(runs_[i], from, filters);
        from += runs_[i].count * kPanel;
      }
    }
    tiles_ = run_count_ = 0;
  }

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
    for (std::int64_t i = 0; i < run.count; ++i) {
      const WidePixels pixels{made + i * kSide * pixel_step, row_step, pixel_step, rows,
                              std::min(kSide, columns - i * kSide)};
      if (transform_wide_products(products + i * kPanel, products_step_, count, bias, pixels)) {
        continue;
      }
      convolve_wide_tile(take_tile(run.image, y, x + i * kSide), kWideSide * p_.channels(),
                         p_.channels(), take_panel(filters), count, p_.turned, bias, pixels);
    }
    const std::int64_t plane = p_.real.windows.result_plane();
    const bool whole = columns == xs.result;
    for (std::int64_t r = 0; r < (whole ? 1 : rows); ++r) {
      const std::int64_t pixel = (y + r) * xs.result + x, pixels = whole ? rows * columns : columns;
      if (last) {
        grid_.finish(run.image * plane + pixel, pixels, filters.first, count);
        continue;
      }
      transpose(pixels, count, bits(made + r * row_step), kPanel, bits(to + r * xs.result), plane);
      grid_.finish(run.image * p_.filters() + filters.first, count, pixel, pixels);
    }
  }

  // A tile with an infinity or NaN, which the transforms spread over all of its pixels: elements
  // beside the image are 0.
  [[nodiscard]] const BFloat16* take_tile(std::int64_t image, std::int64_t y,
                                          std::int64_t x) const {
    const Windows& windows = p_.real.windows;
    const std::int64_t channels = p_.channels(), plane = windows.plane();
    BFloat16* const tile = t_tile.get<BFloat16>(kPoints * channels);
    const BFloat16* const from = p_.real.images + image * channels * plane;
    for (std::int64_t i = 0; i < kPoints; ++i) {
      const std::int64_t row = y - windows.y.padding + i / kWideSide;
      const std::int64_t column = x - windows.x.padding + i % kWideSide;
      const bool inside =
          row >= 0 && row < windows.y.size && column >= 0 && column < windows.x.size;
      const std::int64_t pixel = row * windows.x.size + column;
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t element = p_.real.last() ? pixel * channels + c : c * plane + pixel;
        tile[i * channels + c] = inside ? from[element] : BFloat16(0.F);
      }
    }
    return tile;
  }
  [[nodiscard]] const BFloat16* take_panel(Blocks::Range filters) const {
    BFloat16* const taps = t_taps.get<BFloat16>(p_.channels() * kTaps * kPanel);
    take_taps(p_.weights(), {0, p_.channels()}, filters, bits(taps));
    return taps;
  }

  const Grid& grid_;
  const Problem& p_;
  const float* const weights_;
  const std::int64_t most_, ld_, points_step_, products_step_;
  float* const points_;
  std::int64_t tiles_ = 0, run_count_ = 0;
  TileRun runs_[kMostTiles];
};

void run(Grid& grid, const Problem& p) {
  const float* weights = transform_all_weights(grid, p);
  const std::int64_t all = p.real.windows.images * p.down();
  const std::int64_t wanted = parts(parts(all * p.across(), kMostTiles), kEvenBlocks) * kEvenBlocks;
  const Blocks blocks(all, parts(all, wanted));
  const std::int64_t most = std::min(blocks[0].count() * p.across(), kMostTiles);
  grid.run_by_any(blocks.count(),
                  [&](std::int64_t index) { TileRows(grid, p, weights, most).run(blocks[index]); });
}

BFloat16* elements(const TensorRef& tensor) {
  return tensor.defined() ? reinterpret_cast<BFloat16*>(tensor.data()) : nullptr;
}

Problem problem(const TensorRef& result, const TensorRef& images, const TensorRef& weights,
                const TensorRef& bias, const Windows& windows, bool weights_last, bool turned) {
  const PixelProblem real{elements(result),
                          elements(images),
                          elements(weights),
                          elements(bias),
                          weights.sizes()[turned ? 1 : 0],
                          weights_last,
                          windows};
  Problem p{real, real, turned};
  for (WindowAxis* axis : {&p.whole.windows.y, &p.whole.windows.x}) {
    axis->result = parts(axis->result, kSide) * kSide;
  }
  return p;
}

}  // namespace

bool suits_winograd_bfloat16(const Windows& windows, std::int64_t filters) {
  for (const WindowAxis* axis : {&windows.y, &windows.x}) {
    if (axis->kernel != 3 || axis->stride != 1 || axis->dilation != 1 || axis->padding > 2) {
      return false;
    }
  }
  const std::int64_t channels = windows.channels;
  if (std::min(channels, filters) < kFewest || std::max(channels, filters) > kMost) return false;
  const std::int64_t down = parts(windows.y.result, kSide), across = parts(windows.x.result, kSide);
  const std::int64_t least = channels * filters > kManyWeights ? kLeastPixelsOfMany : kLeastPixels;
  return windows.pixels() >= least * (windows.images * down * across + kWeightTiles);
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
