// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/convolve_runs.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>

namespace loom::ops {
namespace {

// With as many channels columns are as fast, with more pixels oneDNN is.
constexpr std::int64_t kMostChannels = 15, kMostPixels = 8192;
// A product of so short runs, or of so few pixels, reads and writes more sums than it multiplies.
constexpr std::int64_t kShortestRun = 8, kFewestPixels = 16;

const Scratch t_panels, t_rows;

struct Problem : Convolution<float> {
  [[nodiscard]] std::int64_t run() const noexcept { return windows.x.kernel * windows.channels; }
};

/// The filters of all blocks, in panels; their inner order is y, x, channel, as they lie.
const float* pack_filters(const Problem& p) {
  const std::int64_t inner = p.windows.rows();
  float* panels = t_panels.get<float>(ceil_div(p.filters, kPanel) * panel_step<float>(inner));
  pack_panels<float>({p.weights, inner, p.filters, 1, inner}, 0, inner, panels);
  return panels;
}

/// Rows [first, first + count) of an image with their padding, in memory of the thread.
const float* pad_rows(const Problem& p, std::int64_t image, std::int64_t first,
                      std::int64_t count) {
  const WindowAxis &y = p.windows.y, &x = p.windows.x;
  const std::int64_t channels = p.windows.channels, row = x.seen() * channels;
  // Padding, then pixels of the image, then padding again.
  const std::int64_t begin = x.inside_begin(), end = x.inside_end();
  float* rows = t_rows.get<float>(count * row);
  for (std::int64_t i = 0; i < count; ++i) {
    float* to = rows + i * row;
    if (first + i < 0 || first + i >= y.size) {
      std::fill_n(to, row, 0.F);
      continue;
    }
    const float* from =
        p.images + ((image * y.size + first + i) * x.size + begin - x.padding) * channels;
    std::fill(to, to + begin * channels, 0.F);
    std::copy_n(from, (end - begin) * channels, to + begin * channels);
    std::fill(to + end * channels, to + row, 0.F);
  }
  return rows;
}

/// Pixels side by side in a row of the result, and the first row of the image that they see.
void multiply_pixels(const Problem& p, const float* panels, const float* seen, std::int64_t pixels,
                     float* result) {
  const WindowAxis& y = p.windows.y;
  const std::int64_t run = p.run(), row = y.dilation * p.windows.x.seen() * p.windows.channels;
  const std::int64_t step = p.windows.x.stride * p.windows.channels;
  for (std::int64_t f = 0; f < p.filters; f += kPanel) {
    const std::int64_t filters = std::min(kPanel, p.filters - f);
    const float* panel = panels + f / kPanel * panel_step<float>(p.windows.rows());
    if (p.bias != nullptr) {
      for (std::int64_t i = 0; i < pixels; ++i) {
        std::copy_n(p.bias + f, filters, result + i * p.filters + f);
      }
    }
    for (std::int64_t k = 0; k < y.kernel; ++k) {
      multiply_panel<float>({seen + k * row, pixels, run, step, 1}, panel + k * run * kPanel,
                            filters, result + f, p.filters, k > 0 || p.bias != nullptr);
    }
  }
}

/// Rows of the result of one image.
void run_band(const Problem& p, const float* panels, std::int64_t image, Blocks::Range band) {
  const WindowAxis &y = p.windows.y, &x = p.windows.x;
  const std::int64_t seen_rows = (band.count() - 1) * y.stride + (y.kernel - 1) * y.dilation + 1;
  const float* rows = pad_rows(p, image, band.first * y.stride - y.padding, seen_rows);
  for (std::int64_t row = band.first; row < band.last; ++row) {
    const float* seen =
        rows + (row - band.first) * y.stride * p.windows.x.seen() * p.windows.channels;
    float* result = p.result + (image * y.result + row) * x.result * p.filters;
    for (std::int64_t at = 0; at < x.result; at += kTileRows) {
      multiply_pixels(p, panels, seen + at * x.stride * p.windows.channels,
                      std::min(kTileRows, x.result - at), result + at * p.filters);
    }
  }
}

}  // namespace

bool suits_runs(const Windows& windows) {
  return windows.channels <= kMostChannels && windows.pixels() <= kMostPixels &&
         windows.x.dilation == 1 && windows.x.kernel * windows.channels >= kShortestRun &&
         windows.x.result >= kFewestPixels;
}

void convolve_runs(Grid& grid, const TensorRef& result, const TensorRef& images,
                   const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  const Problem p{{elements<float>(result), elements<float>(images), elements<float>(weights),
                   elements<float>(bias), weights.sizes()[0], false, true, windows}};
  const bool mends = p.needs_mending();
  const float* panels = pack_filters(p);
  const double row = work(windows.x.result, windows.rows(), p.filters);
  const Blocks bands = bands_of(windows, row, kBlockWork);
  grid.run_by_any(windows.images * bands.count(), [&](std::int64_t index) {
    const Blocks::Range band = bands[index % bands.count()];
    const std::int64_t image = index / bands.count();
    run_band(p, panels, image, band);
    const std::int64_t pixel = (image * windows.y.result + band.first) * windows.x.result;
    const std::int64_t pixels = band.count() * windows.x.result;
    if (mends) p.mend({pixel, pixel + pixels}, {0, p.filters});
    grid.finish(pixel, pixels, 0, p.filters);
  });
}

}  // namespace loom::ops
