// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/convolve_pixels.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/pixel_rows.h"

#include <algorithm>
#include <vector>

namespace loom::ops {
namespace {

using c10::BFloat16;

// Rows of so many pixels are a tile each: shorter ones are multiplied together with what lies
// between them.
constexpr std::int64_t kLongRow = 28;
// Beyond these oneDNN is as fast or faster: it reorders weights in every call, but in channels_last
// nothing else.
constexpr std::int64_t kFewestFilters = 16, kShortestSum = 64;
constexpr std::int64_t kSmallPlane = 64, kSmallestPlane = 16, kMostPixelsOfSmall = 2048;
constexpr std::int64_t kMostPixelsLast = 4096;
// Packed weights stay in memory for the next call: more are not packed for a few pixels.
constexpr std::int64_t kMostWeights = 8 << 20;
// First layers.
constexpr std::int64_t kFewChannels = 16, kShortestSumOfFew = 96;
// Multiply-adds of a block, twice as fast as float32's.
constexpr double kPixelBlockWork = 4 * kBlockWork;
// Weights that are put in order, and inner elements that are packed, at a time.
constexpr std::int64_t kOrderedAtOnce = 4096;
constexpr std::int64_t kPackedAtOnce = 64;

const Scratch t_weights, t_panels, t_gathered, t_sums, t_rounded;

/// Putting a few windows together channel by channel is less work than putting the weights in the
/// order of pixels.
bool goes_by_channels(const Windows& windows, std::int64_t filters, bool weights_last) {
  return !windows.channels_last && !weights_last && windows.pixels() * windows.y.kernel <= filters;
}

/// The weights of all filters, in panels; their inner order is that of windows.
const BFloat16* pack_weights(Grid& grid, const PixelProblem& p) {
  const std::int64_t channels = p.channels(), taps = p.windows.taps(), all = p.windows.rows();
  const std::int64_t inner = p.inner();
  const BFloat16* from = p.weights;
  // Pairs are packed as one number.
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % (2 * sizeof(BFloat16)) == 0;
  if ((!p.weights_last && !p.by_channels) || inner != all || !aligned) {
    BFloat16* to = t_weights.get<BFloat16>(p.filters * inner);
    const Blocks filters(p.filters, std::max<std::int64_t>(kOrderedAtOnce / all, 1));
    grid.run_by_any(filters.count(), [&](std::int64_t index) {
      for (std::int64_t f = filters[index].first; f < filters[index].last; ++f) {
        BFloat16* row = to + f * inner;
        if (p.weights_last || p.by_channels) {
          std::copy_n(p.weights + f * all, all, row);
        } else {
          transpose(channels, taps, bits(p.weights + f * all), taps, bits(row), channels);
        }
        std::fill(row + all, row + inner, BFloat16(0.F));
      }
    });
    from = to;
  }
  const MatrixView<const BFloat16> right{from, inner, p.filters, 1, inner};
  BFloat16* panels =
      t_panels.get<BFloat16>(ceil_div(p.filters, kPanel) * panel_step<BFloat16>(inner));
  const Blocks blocks(inner, kPackedAtOnce);
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const auto [first, last] = blocks[index];
    pack_panels(right, first, last - first, panels);
  });
  return panels;
}

/// What the bands have in common.
struct BandOperands {
  const BFloat16* panels;        ///< of the weights
  std::vector<RowPiece> pieces;  ///< of a window, if it is gathered
};

/// Some rows of one image's result, or some pixels of one row.
class Band {
 public:
  Band(const PixelProblem& p, const BandOperands& operands, std::int64_t image, std::int64_t first,
       std::int64_t count, PixelRun pixels)
      : p_(p),
        operands_(operands),
        image_(image),
        first_(first),
        count_(count),
        pixels_(pixels),
        rows_(
            p, image, first * p.windows.y.stride - p.windows.y.padding,
            (count - 1) * p.windows.y.stride + (p.windows.y.kernel - 1) * p.windows.y.dilation + 1,
            pixels) {}

  void run() {
    const std::int64_t width = pixels_.count;
    if (p_.gathers()) {
      for (std::int64_t at = 0; at < count_ * width; at += kTileRows) {
        multiply_tile(at, std::min(kTileRows, count_ * width - at), width);
      }
    } else if (p_.windows.x.result >= kLongRow || p_.windows.y.stride != 1 ||
               p_.windows.x.stride != 1) {
      for (std::int64_t y = 0; y < count_; ++y) {
        for (std::int64_t x = 0; x < width; x += kTileRows) {
          multiply_tile(y * p_.windows.x.seen() + x, std::min(kTileRows, width - x),
                        p_.windows.x.seen());
        }
      }
    } else {
      const std::int64_t all = (count_ - 1) * p_.windows.x.seen() + width;
      for (std::int64_t at = 0; at < all; at += kTileRows) {
        multiply_tile(at, std::min(kTileRows, all - at), p_.windows.x.seen());
      }
    }
  }

 private:
  // Rows [at, at + count) of the left operand, of which there are `pitch` from one row of the
  // result to the next; those beyond its width are of no pixel.
  void multiply_tile(std::int64_t at, std::int64_t count, std::int64_t pitch) {
    const std::int64_t inner = p_.inner();
    const WindowAxis& y = p_.windows.y;
    rows_.make((at + count - 1) / pitch * y.stride + (y.kernel - 1) * y.dilation + 1);
    float* sums = t_sums.get<float>(kTileRows * kPanel);
    const BFloat16* gathered = p_.gathers() ? gather(at, count) : nullptr;
    for (std::int64_t f = 0; f < p_.filters; f += kPanel) {
      const std::int64_t filters = std::min(kPanel, p_.filters - f);
      const BFloat16* panel = operands_.panels + f / kPanel * panel_step<BFloat16>(inner);
      fetch_result(at, count, pitch, f, filters);
      if (gathered != nullptr) {
        for (std::int64_t k = 0; k < inner; k += kMaxInner<BFloat16>) {
          const std::int64_t depth = std::min(kMaxInner<BFloat16>, inner - k);
          multiply_panel({gathered + k, count, depth, p_.gathered_step(), 1}, panel + k * kPanel,
                         filters, sums, kPanel, k > 0);
        }
      } else {
        multiply_runs(at, count, panel, filters, sums);
      }
      store(sums, at, count, pitch, f, filters);
    }
  }

  // What the pixels see, run by run.
  void multiply_runs(std::int64_t at, std::int64_t count, const BFloat16* panel,
                     std::int64_t filters, float* sums) const {
    const WindowAxis &y = p_.windows.y, &x = p_.windows.x;
    const std::int64_t run = p_.run(), step = x.stride * p_.channels();
    const std::int64_t runs = x.dilation == 1 ? 1 : x.kernel;
    for (std::int64_t tap = 0; tap < y.kernel * runs; ++tap) {
      const std::int64_t k = tap / runs, shift = tap % runs * x.dilation;
      const std::int64_t row = at / p_.windows.x.seen() * y.stride + k * y.dilation;
      const BFloat16* from = rows_.pixel(row, at % p_.windows.x.seen() * x.stride + shift);
      for (std::int64_t i = 0; i < run; i += kMaxInner<BFloat16>) {
        const std::int64_t depth = std::min(kMaxInner<BFloat16>, run - i);
        multiply_panel({from + i, count, depth, step, 1}, panel + (tap * run + i) * kPanel, filters,
                       sums, kPanel, tap > 0 || i > 0);
      }
    }
  }

  // Whole windows, one after the other.
  const BFloat16* gather(std::int64_t at, std::int64_t count) const {
    const WindowAxis &y = p_.windows.y, &x = p_.windows.x;
    const std::int64_t width = pixels_.count, ld = p_.gathered_step();
    BFloat16* to = t_gathered.get<BFloat16>(std::min(kTileRows, count_ * width) * ld);
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t row = (at + i) / width, pixel = (at + i) % width;
      const std::int64_t pixels = std::min(count - i, width - pixel);
      kernels::gemm::gather_rows(stored(rows_.pixel(row * y.stride, pixel * x.stride)),
                                 x.stride * p_.pixel_step(), pixels, operands_.pieces.data(),
                                 operands_.pieces.size(), stored(to + i * ld), ld);
      i += pixels;
    }
    return to;
  }

  /// The pixel of the tile's first row, counted within the image; of a row that is of no pixel, the
  /// next one.
  [[nodiscard]] std::int64_t first_pixel(std::int64_t at, std::int64_t pitch) const {
    const std::int64_t row = first_ + at / pitch;
    return row * p_.windows.x.result + pixels_.first + std::min(at % pitch, pixels_.count);
  }

  // While the product runs.
  void fetch_result(std::int64_t at, std::int64_t count, std::int64_t pitch, std::int64_t filter,
                    std::int64_t filters) const {
    const std::int64_t first = first_pixel(at, pitch), last = first_pixel(at + count, pitch);
    if (p_.last()) {
      for (std::int64_t pixel = first; pixel < last; ++pixel) {
        prefetch_lines<true>(p_.result_at(image_, pixel, filter), filters);
      }
      return;
    }
    for (std::int64_t f = filter; f < filter + filters; ++f) {
      prefetch_lines<true>(p_.result_at(image_, first, f), last - first);
    }
  }

  void store(const float* sums, std::int64_t at, std::int64_t count, std::int64_t pitch,
             std::int64_t filter, std::int64_t filters) const {
    const std::int64_t width = pixels_.count;
    const BFloat16* bias = p_.bias != nullptr ? p_.bias + filter : nullptr;
    // Pixels of the tile are neighbours in the result, also from one row to the next.
    const std::int64_t first = first_pixel(at, pitch);
    BFloat16* to = p_.result_at(image_, first, filter);
    BFloat16* rounded = p_.last() ? to : t_rounded.get<BFloat16>(kTileRows * kPanel);
    const std::int64_t step = p_.last() ? p_.filters : kPanel;
    std::int64_t pixels = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if ((at + i) % pitch >= width) continue;
      kernels::gemm::store_sums(sums + i * kPanel, stored(bias), filters,
                                stored(rounded + pixels * step));
      ++pixels;
    }
    if (p_.last()) return;
    transpose(pixels, filters, bits(rounded), kPanel, bits(to), p_.windows.result_plane());
  }

  const PixelProblem& p_;
  const BandOperands& operands_;
  const std::int64_t image_, first_, count_;
  const PixelRun pixels_;
  ImageRows rows_;
};

/// Rows that are more than a block's work, as those of signals, are cut into whole tiles.
Blocks runs_of(const Windows& windows, double row_work) {
  const std::int64_t width = windows.x.result;
  if (row_work < 2 * kPixelBlockWork) return {width, width};
  const auto wanted = static_cast<std::int64_t>(row_work / kPixelBlockWork);
  return {width, round_up(ceil_div(width, wanted), kTileRows)};
}

}  // namespace

bool suits_pixels(const Windows& windows, std::int64_t filters, bool weights_last) {
  if (filters < kFewestFilters || windows.rows() < kShortestSum) return false;
  const std::int64_t pixels = windows.pixels(), plane = windows.result_plane();
  const bool large = windows.x.result >= kShortestPixelRow && plane >= kSmallPlane;
  if (large && !windows.channels_last) return true;
  if (windows.rows() * filters > kMostWeights) return false;
  if (windows.channels_last) {
    return pixels <= kMostPixelsLast ||
           (windows.channels < kFewChannels && windows.rows() >= kShortestSumOfFew);
  }
  return goes_by_channels(windows, filters, weights_last) ||
         (pixels <= kMostPixelsOfSmall && plane >= kSmallestPlane);
}

void convolve_pixels(Grid& grid, const TensorRef& result, const TensorRef& images,
                     const TensorRef& weights, const TensorRef& bias, const Windows& windows,
                     bool weights_last) {
  const PixelProblem p{elements<BFloat16>(result),
                       elements<BFloat16>(images),
                       elements<BFloat16>(weights),
                       elements<BFloat16>(bias),
                       weights.sizes()[0],
                       weights_last,
                       windows,
                       goes_by_channels(windows, weights.sizes()[0], weights_last)};
  const BandOperands operands{pack_weights(grid, p),
                              p.gathers() ? window_pieces(p) : std::vector<RowPiece>{}};
  const Convolution<simd::BFloat16> direct = p.direct(false);
  const bool mends = direct.needs_mending();
  const double row = work(windows.x.result, windows.rows(), p.filters);
  const Blocks bands = bands_of(windows, row, kPixelBlockWork), runs = runs_of(windows, row);
  grid.run_by_any(windows.images * bands.count() * runs.count(), [&](std::int64_t index) {
    const MatrixUnitScope<BFloat16> scope;
    const Blocks::Range run = runs[index % runs.count()];
    const Blocks::Range range = bands[index / runs.count() % bands.count()];
    const std::int64_t image = index / runs.count() / bands.count(), width = windows.x.result;
    Band(p, operands, image, range.first, range.count(), {run.first, run.count()}).run();
    const std::int64_t pixel = range.first * width + run.first;
    const std::int64_t pixels = (range.count() - 1) * width + run.count();
    const std::int64_t counted = image * windows.result_plane() + pixel;
    if (mends) direct.mend({counted, counted + pixels}, {0, p.filters});
    if (p.last()) {
      grid.finish(counted, pixels, 0, p.filters);
    } else {
      grid.finish(image * p.filters, p.filters, pixel, pixels);
    }
  });
}

}  // namespace loom::ops
