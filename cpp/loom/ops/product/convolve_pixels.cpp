// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/convolve_pixels.h"

#include "loom/ops/product/bfloat16.h"
#include "loom/ops/product/convolve_parts.h"
#include "loom/ops/product/multiply.h"

#include <algorithm>
#include <cstring>

namespace loom::ops {
namespace {

using c10::BFloat16;

// A block kernel adds up at least so many elements at a time, or windows are gathered.
constexpr std::int64_t kLeastRun = 32;
// Rows of so many pixels are a tile each: shorter ones are multiplied together with what lies
// between them.
constexpr std::int64_t kLongRow = 28;
// Where oneDNN is as fast or faster.
constexpr std::int64_t kFewestFilters = 16, kShortestRow = 14, kFewestPixels = 64;
constexpr std::int64_t kShortestSum = 64;
// Multiply-adds of a block, twice as fast as float32's.
constexpr double kPixelBlockWork = 4 * kBlockWork;
constexpr std::int64_t kFewImages = 4;
// Weights that are put in order, and inner elements that are packed, at a time.
constexpr std::int64_t kOrderedAtOnce = 4096;
constexpr std::int64_t kPackedAtOnce = 64;
constexpr std::int64_t kLineElements = 64 / sizeof(BFloat16);

const Scratch t_weights, t_panels, t_rows, t_gathered, t_sums, t_rounded;

std::uint16_t* bits(BFloat16* data) { return reinterpret_cast<std::uint16_t*>(data); }
const std::uint16_t* bits(const BFloat16* data) {
  return reinterpret_cast<const std::uint16_t*>(data);
}

std::int64_t even(std::int64_t count) { return (count + 1) / 2 * 2; }

struct Problem {
  BFloat16* result;
  const BFloat16 *images, *weights, *bias;
  std::int64_t filters;
  bool weights_last;
  Windows windows;

  [[nodiscard]] std::int64_t channels() const noexcept { return windows.channels; }
  /// Pixels of a row with its padding: what the windows of a row of the result see.
  [[nodiscard]] std::int64_t pitch() const noexcept {
    const WindowAxis& x = windows.x;
    return (x.result - 1) * x.stride + (x.kernel - 1) * x.dilation + 1;
  }
  /// Elements side by side that a pixel of the result sees of one row.
  [[nodiscard]] std::int64_t run() const noexcept {
    return windows.x.dilation == 1 ? windows.x.kernel * channels() : channels();
  }
  /// Whether windows are copied together, because their runs are short.
  [[nodiscard]] bool gathers() const noexcept { return run() % 2 != 0 || run() < kLeastRun; }
  [[nodiscard]] std::int64_t inner() const noexcept { return even(windows.rows()); }
};

/// The weights of all filters, in panels; their inner order is y, x, channel.
const BFloat16* pack_weights(Grid& grid, const Problem& p) {
  const std::int64_t channels = p.channels(), taps = p.windows.taps(), all = p.windows.rows();
  const std::int64_t inner = p.inner();
  const BFloat16* from = p.weights;
  // Pairs are packed as one number.
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % (2 * sizeof(BFloat16)) == 0;
  if (!p.weights_last || inner != all || !aligned) {
    BFloat16* to = t_weights.get<BFloat16>(p.filters * inner);
    const Blocks filters(p.filters, std::max<std::int64_t>(kOrderedAtOnce / all, 1));
    grid.run_by_any(filters.count(), [&](std::int64_t index) {
      for (std::int64_t f = filters[index].first; f < filters[index].last; ++f) {
        BFloat16* row = to + f * inner;
        if (p.weights_last) {
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
  BFloat16* panels = t_panels.get<BFloat16>(parts(p.filters, kPanel) * panel_step<BFloat16>(inner));
  const Blocks blocks(inner, kPackedAtOnce);
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const auto [first, last] = blocks[index];
    pack_panels(right, first, last - first, panels);
  });
  return panels;
}

/// Lines of memory that are about to be written or read.
template <bool kWrites>
void prefetch(const BFloat16* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLineElements) __builtin_prefetch(from + i, kWrites);
  if (count > 0) __builtin_prefetch(from + count - 1, kWrites);
}

/// Rows of one image with their padding, pixel by pixel with all channels, in memory of the thread.
class ImageRows {
 public:
  ImageRows(const Problem& p, std::int64_t image, std::int64_t first, std::int64_t count)
      : p_(p),
        image_(p.images + image * p.channels() * p.windows.plane()),
        first_(first),
        count_(count),
        row_elements_(p.pitch() * p.channels()),
        begin_(std::clamp<std::int64_t>(p.windows.x.padding, 0, p.pitch())),
        end_(std::clamp(p.windows.x.size + p.windows.x.padding, begin_, p.pitch())),
        // What is copied may be a vector longer than a run.
        to_(t_rows.get<BFloat16>(count * row_elements_ + kPanel)) {}

  /// Makes the rows before `end` that have not been made, and fetches those that come after.
  void make(std::int64_t end) {
    for (; made_ < end; ++made_) {
      BFloat16* row = to_ + made_ * row_elements_;
      const bool inside = is_inside(made_);
      const std::int64_t from = inside ? begin_ : p_.pitch(), to = inside ? end_ : p_.pitch();
      clear(row, 0, from);
      if (to > from) copy(made_, row + from * p_.channels());
      clear(row, to, p_.pitch());
    }
    for (; fetched_ < std::min(end + p_.windows.y.stride, count_); ++fetched_) {
      if (fetched_ < made_ || !is_inside(fetched_)) continue;
      for (std::int64_t c = 0; c < p_.channels(); ++c) {
        prefetch<false>(source(fetched_) + c * p_.windows.plane(), end_ - begin_);
      }
    }
  }
  [[nodiscard]] const BFloat16* pixel(std::int64_t row, std::int64_t x) const noexcept {
    return to_ + row * row_elements_ + x * p_.channels();
  }

 private:
  [[nodiscard]] bool is_inside(std::int64_t row) const noexcept {
    return first_ + row >= 0 && first_ + row < p_.windows.y.size;
  }
  /// The first channel of what the image has of a row.
  [[nodiscard]] const BFloat16* source(std::int64_t row) const noexcept {
    const WindowAxis& x = p_.windows.x;
    const std::int64_t pixel = (first_ + row) * x.size + begin_ - x.padding;
    return image_ + pixel;
  }
  void clear(BFloat16* row, std::int64_t from, std::int64_t to) const {
    const auto bytes = static_cast<std::size_t>((to - from) * p_.channels()) * sizeof(BFloat16);
    std::memset(static_cast<void*>(row + from * p_.channels()), 0, bytes);
  }
  void copy(std::int64_t row, BFloat16* to) const {
    transpose(p_.channels(), end_ - begin_, bits(source(row)), p_.windows.plane(), bits(to),
              p_.channels());
  }

  const Problem& p_;
  const BFloat16* const image_;
  const std::int64_t first_, count_, row_elements_, begin_, end_;
  BFloat16* const to_;
  std::int64_t made_ = 0, fetched_ = 0;
};

/// Some rows of one image's result.
class Band {
 public:
  Band(const Problem& p, const BFloat16* panels, std::int64_t image, std::int64_t first,
       std::int64_t count)
      : p_(p),
        panels_(panels),
        image_(image),
        first_(first),
        count_(count),
        rows_(p, image, first * p.windows.y.stride - p.windows.y.padding,
              (count - 1) * p.windows.y.stride + (p.windows.y.kernel - 1) * p.windows.y.dilation +
                  1) {}

  void run() {
    const std::int64_t width = p_.windows.x.result;
    if (p_.gathers()) {
      for (std::int64_t at = 0; at < count_ * width; at += kTileRows) {
        multiply_tile(at, std::min(kTileRows, count_ * width - at), width);
      }
    } else if (width >= kLongRow || p_.windows.y.stride != 1 || p_.windows.x.stride != 1) {
      for (std::int64_t y = 0; y < count_; ++y) {
        for (std::int64_t x = 0; x < width; x += kTileRows) {
          multiply_tile(y * p_.pitch() + x, std::min(kTileRows, width - x), p_.pitch());
        }
      }
    } else {
      const std::int64_t all = (count_ - 1) * p_.pitch() + width;
      for (std::int64_t at = 0; at < all; at += kTileRows) {
        multiply_tile(at, std::min(kTileRows, all - at), p_.pitch());
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
      const BFloat16* panel = panels_ + f / kPanel * panel_step<BFloat16>(inner);
      fetch_result(at, count, pitch, f, filters);
      if (gathered != nullptr) {
        for (std::int64_t k = 0; k < inner; k += kMaxInner<BFloat16>) {
          const std::int64_t depth = std::min(kMaxInner<BFloat16>, inner - k);
          multiply_panel({gathered + k, count, depth, inner, 1}, panel + k * kPanel, filters, sums,
                         kPanel, k > 0);
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
      const std::int64_t row = at / p_.pitch() * y.stride + k * y.dilation;
      const BFloat16* from = rows_.pixel(row, at % p_.pitch() * x.stride + shift);
      for (std::int64_t i = 0; i < run; i += kMaxInner<BFloat16>) {
        const std::int64_t depth = std::min(kMaxInner<BFloat16>, run - i);
        multiply_panel({from + i, count, depth, step, 1}, panel + (tap * run + i) * kPanel, filters,
                       sums, kPanel, tap > 0 || i > 0);
      }
    }
  }

  // Short runs as a whole vector: what is beyond their end is overwritten by the next.
  static void copy_run(const BFloat16* from, std::int64_t run, BFloat16* to) {
    if (run <= kLineElements) {
      std::memcpy(static_cast<void*>(to), from, kLineElements * sizeof(BFloat16));
    } else {
      std::copy_n(from, run, to);
    }
  }

  // Whole windows, one after the other.
  const BFloat16* gather(std::int64_t at, std::int64_t count) const {
    const WindowAxis &y = p_.windows.y, &x = p_.windows.x;
    const std::int64_t inner = p_.inner(), run = p_.run(), width = x.result;
    const std::int64_t runs = x.dilation == 1 ? 1 : x.kernel;
    BFloat16* to = t_gathered.get<BFloat16>(kTileRows * inner + kPanel);
    const std::int64_t next_row = y.dilation * p_.pitch() * p_.channels();
    const std::int64_t next_run = x.dilation * p_.channels(), step = x.stride * p_.channels();
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t row = (at + i) / width, pixel = (at + i) % width;
      const std::int64_t last = std::min(count, i + width - pixel);
      const BFloat16* from = rows_.pixel(row * y.stride, pixel * x.stride);
      for (; i < last; ++i, from += step) {
        BFloat16* window = to + i * inner;
        for (std::int64_t k = 0; k < y.kernel; ++k) {
          for (std::int64_t r = 0; r < runs; ++r, window += run) {
            copy_run(from + k * next_row + r * next_run, run, window);
          }
        }
        std::fill(window, to + (i + 1) * inner, BFloat16(0.F));
      }
    }
    return to;
  }

  /// The pixel of the tile's first row, counted within the image; of a row that is of no pixel, the
  /// next one.
  [[nodiscard]] std::int64_t first_pixel(std::int64_t at, std::int64_t pitch) const {
    const std::int64_t width = p_.windows.x.result;
    return (first_ + at / pitch) * width + std::min(at % pitch, width);
  }

  // While the product runs.
  void fetch_result(std::int64_t at, std::int64_t count, std::int64_t pitch, std::int64_t filter,
                    std::int64_t filters) const {
    const std::int64_t plane = p_.windows.result_plane(), first = first_pixel(at, pitch);
    const std::int64_t pixels = first_pixel(at + count, pitch) - first;
    const BFloat16* to = p_.result + (image_ * p_.filters + filter) * plane + first;
    for (std::int64_t f = 0; f < filters; ++f) prefetch<true>(to + f * plane, pixels);
  }

  void store(const float* sums, std::int64_t at, std::int64_t count, std::int64_t pitch,
             std::int64_t filter, std::int64_t filters) const {
    const std::int64_t width = p_.windows.x.result, plane = p_.windows.result_plane();
    const BFloat16* bias = p_.bias != nullptr ? p_.bias + filter : nullptr;
    // Pixels of the tile are neighbours in the result, also from one row to the next.
    const std::int64_t first = first_pixel(at, pitch);
    BFloat16* rounded = t_rounded.get<BFloat16>(kTileRows * kPanel);
    std::int64_t pixels = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if ((at + i) % pitch >= width) continue;
      store_sums(sums + i * kPanel, bias, filters, rounded + pixels * kPanel);
      ++pixels;
    }
    BFloat16* to = p_.result + (image_ * p_.filters + filter) * plane + first;
    transpose(pixels, filters, bits(rounded), kPanel, bits(to), plane);
  }

  const Problem& p_;
  const BFloat16* panels_;
  const std::int64_t image_, first_, count_;
  ImageRows rows_;
};

BFloat16* elements(const TensorRef& tensor) {
  return tensor.defined() ? reinterpret_cast<BFloat16*>(tensor.data()) : nullptr;
}

}  // namespace

bool suits_pixels(const Windows& windows, std::int64_t filters) {
  return filters >= kFewestFilters && windows.x.result >= kShortestRow &&
         windows.result_plane() >= kFewestPixels && windows.rows() >= kShortestSum;
}

void convolve_pixels(Grid& grid, const TensorRef& result, const TensorRef& images,
                     const TensorRef& weights, const TensorRef& bias, const Windows& windows,
                     bool weights_last) {
  const Problem p{elements(result), elements(images),   elements(weights),
                  elements(bias),   weights.sizes()[0], weights_last,
                  windows};
  const BFloat16* panels = pack_weights(grid, p);
  const double row = work(windows.x.result, windows.rows(), p.filters);
  const auto wanted = static_cast<std::int64_t>(kPixelBlockWork / row);
  // A few images are cut even if they are small.
  const std::int64_t most = parts(windows.y.result, parts(kFewImages, windows.images));
  const Blocks bands(windows.y.result, std::clamp<std::int64_t>(wanted, 1, most));
  grid.run_by_any(windows.images * bands.count(), [&](std::int64_t index) {
    const MatrixUnitScope<BFloat16> scope;
    const Blocks::Range range = bands[index % bands.count()];
    const std::int64_t image = index / bands.count(), width = windows.x.result;
    Band(p, panels, image, range.first, range.count()).run();
    grid.finish(image * p.filters, p.filters, range.first * width, range.count() * width);
  });
}

}  // namespace loom::ops
