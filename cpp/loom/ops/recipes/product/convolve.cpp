// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/convolve.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/rows.h"
#include "loom/kernels/norm/sums.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>

namespace loom::ops {
namespace {

// Up to so many pixels inner products are faster: a vector of pixels would be mostly empty.
constexpr std::int64_t kFewPixels = 8;
// From so many panels of pixels on each block makes its own columns, and has all filters.
constexpr std::int64_t kManyPanels = 8;
// Bytes of weights that a block of inner products reads.
constexpr std::int64_t kDotBytes = 512 * 1024;
// A cache line more, so that rows do not all begin in the same set of the cache.
constexpr std::int64_t kLine = 16;

const Scratch t_columns, t_sums, t_shared, t_dots;

struct Problem : Convolution<float> {
  bool mends = false;

  [[nodiscard]] MatrixView<const float> weight_rows() const noexcept {
    return {weights, filters, windows.rows(), windows.rows(), 1};
  }
};

/// Puts the sums of some pixels and filters where the result is.
void scatter(const Problem& p, const float* sums, std::int64_t ld, std::int64_t first_pixel,
             std::int64_t pixels, std::int64_t first_filter, std::int64_t filters) {
  if (p.windows.channels_last) {
    transpose(filters, pixels, sums, ld, p.result + first_pixel * p.filters + first_filter,
              p.filters);
    return;
  }
  const std::int64_t plane = p.windows.result_plane();
  for_each_image(p.windows, first_pixel, pixels, [&](const ImageRun& run) {
    for (std::int64_t f = 0; f < filters; ++f) {
      float* to = p.result + (run.image * p.filters + first_filter + f) * plane + run.pixel;
      std::copy_n(sums + f * ld + run.column, run.count, to);
    }
  });
}

/// Where a panel's sums are made: in the result if that has all of them in one image and in planes,
/// else beside.
struct Sums {
  float* to;
  std::int64_t ld;
  bool beside;
};

Sums sums_of(const Problem& p, std::int64_t pixel, std::int64_t pixels, std::int64_t filter,
             float* scratch) {
  const std::int64_t plane = p.windows.result_plane();
  const std::int64_t image = pixel / plane, at = pixel % plane;
  if (p.windows.channels_last || at + pixels > plane) return {scratch, kPanel, true};
  return {p.result + (image * p.filters + filter) * plane + at, plane, false};
}

/// Some pixels of some filters are final but for what the columns' zeros did.
void finish(const Grid& grid, const Problem& p, std::int64_t first_pixel, std::int64_t pixels,
            Blocks::Range filters) {
  if (p.mends) p.mend({first_pixel, first_pixel + pixels}, filters);
  if (p.windows.channels_last) {
    return grid.finish(first_pixel, pixels, filters.first, filters.count());
  }
  for_each_image(p.windows, first_pixel, pixels, [&](const ImageRun& run) {
    grid.finish(run.image * p.filters + filters.first, filters.count(), run.pixel, run.count);
  });
}

// Some filters of some panels of pixels. `columns(row, rows, panel)` has the columns of a panel,
// with `ld` elements from row to row.
template <class MakeColumns>
void run_panels(const Problem& p, Blocks::Range panels, Blocks::Range filters, std::int64_t ld,
                MakeColumns&& columns) {
  const std::int64_t inner = p.windows.rows(), chunk = inner_chunk(inner);
  const std::int64_t all = p.windows.pixels();
  float* scratch = t_sums.get<float>(panels.count() * filters.count() * kPanel);
  for (std::int64_t k = 0; k < inner; k += chunk) {
    const std::int64_t depth = std::min(chunk, inner - k);
    const float* right[kMostPanels];
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
      right[panel - panels.first] = columns(k, depth, panel);
    }
    for (std::int64_t f = filters.first; f < filters.last; f += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, filters.last - f);
      const MatrixView<const float> left = p.weight_rows().part(f, k, rows, depth);
      for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
        const std::int64_t pixel = panel * kPanel, pixels = std::min(kPanel, all - pixel);
        float* beside =
            scratch + ((panel - panels.first) * filters.count() + f - filters.first) * kPanel;
        const Sums sums = sums_of(p, pixel, pixels, f, beside);
        if (k == 0 && p.bias != nullptr) {
          kernels::spread_column(rows, pixels, p.bias + f, 1, sums.to, sums.ld);
        }
        multiply_rows(left, {right[panel - panels.first], depth, pixels, ld, 1}, sums.to, sums.ld,
                      k > 0 || p.bias != nullptr);
        if (sums.beside && k + depth == inner) {
          scatter(p, sums.to, sums.ld, pixel, pixels, f, rows);
        }
      }
    }
  }
}

// Many pixels: each block makes the columns of its own.
void run_by_pixels(Grid& grid, const Problem& p) {
  const std::int64_t all = p.windows.pixels(), panels = ceil_div(all, kPanel);
  const double panel_work = work(p.filters, p.windows.rows(), kPanel);
  const std::int64_t length = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(kBlockWork / panel_work), 1, std::min(kMostPanels, panels / 4));
  const Blocks blocks(panels, length);
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const Blocks::Range range = blocks[index];
    const std::int64_t chunk = inner_chunk(p.windows.rows()), first = range.first * kPanel;
    const std::int64_t ld = range.count() * kPanel + kLine;
    const std::int64_t pixels = std::min(range.count() * kPanel, all - first);
    const Columns columns(p.windows, first, pixels);
    float* made = t_columns.get<float>(chunk * ld);
    run_panels(p, range, {0, p.filters}, ld,
               [&](std::int64_t row, std::int64_t rows, std::int64_t panel) {
                 if (panel == range.first) columns.make(p.images, row, rows, made, ld);
                 return made + (panel - range.first) * kPanel;
               });
    finish(grid, p, first, pixels, {0, p.filters});
  });
}

// Few pixels: the columns are made once, then each block has some of the filters.
void run_by_filters(Grid& grid, const Problem& p) {
  const std::int64_t all = p.windows.pixels(), panels = ceil_div(all, kPanel);
  const std::int64_t inner = p.windows.rows();
  float* made = t_shared.get<float>(panels * inner * kPanel);
  make_panels(grid, p.windows, p.images, made);
  const std::int64_t lanes = std::min(round_up(all, 16), panels * kPanel);
  const Blocks filters(p.filters, filters_of_block(p.filters, work(p.filters, inner, lanes)));
  const Blocks groups(panels, kMostPanels);
  grid.run_by_any(filters.count() * groups.count(), [&](std::int64_t index) {
    const Blocks::Range group = groups[index % groups.count()];
    const Blocks::Range some = filters[index / groups.count()];
    run_panels(p, group, some, kPanel,
               [&](std::int64_t row, std::int64_t, std::int64_t panel) -> const float* {
                 return made + (panel * inner + row) * kPanel;
               });
    const std::int64_t first = group.first * kPanel;
    finish(grid, p, first, std::min(group.count() * kPanel, all - first), some);
  });
}

// A handful of pixels: inner products of the weights with each.
void run_dots(Grid& grid, const Problem& p) {
  const std::int64_t pixels = p.windows.pixels(), inner = p.windows.rows();
  float* made = t_shared.get<float>(2 * inner * pixels);
  float* vectors = made + inner * pixels;
  Columns(p.windows, 0, pixels).make(p.images, 0, inner, made, pixels);
  transpose(inner, pixels, made, pixels, vectors, inner);
  const std::int64_t bytes = inner * static_cast<std::int64_t>(sizeof(float));
  const Blocks blocks(p.filters, std::max<std::int64_t>(kDotBytes / bytes, 16));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const Blocks::Range range = blocks[index];
    const std::int64_t count = range.count();
    float* dots = t_dots.get<float>(2 * pixels * count);
    multiply_vectors({vectors, pixels, inner, inner, 1},
                     p.weight_rows().part(range.first, 0, count, inner), dots, count);
    if (p.windows.channels_last) {
      float* to = p.result + range.first;
      kernels::copy_rows(pixels, count, count, dots, count, to, p.filters);
      for (std::int64_t i = 0; p.bias != nullptr && i < pixels; ++i) {
        kernels::norm::add_rows<float>(p.bias + range.first, 1, count, to + i * p.filters, count);
      }
      return finish(grid, p, 0, pixels, range);
    }
    float* sums = dots + pixels * count;
    if (p.bias != nullptr) {
      kernels::spread_column(count, pixels, p.bias + range.first, 1, sums, pixels);
    } else {
      std::fill_n(sums, count * pixels, 0.F);
    }
    kernels::add_transposed(count, pixels, dots, count, sums, pixels);
    scatter(p, sums, pixels, 0, pixels, range.first, count);
    finish(grid, p, 0, pixels, range);
  });
}

}  // namespace

void convolve_columns(Grid& grid, const TensorRef& result, const TensorRef& images,
                      const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  Problem problem{{elements<float>(result), elements<float>(images), elements<float>(weights),
                   elements<float>(bias), weights.sizes()[0], false, windows.channels_last,
                   windows}};
  problem.mends = problem.needs_mending();
  const std::int64_t pixels = windows.pixels();
  if (pixels <= kFewPixels) return run_dots(grid, problem);
  if (pixels >= kManyPanels * kPanel) return run_by_pixels(grid, problem);
  run_by_filters(grid, problem);
}

}  // namespace loom::ops
