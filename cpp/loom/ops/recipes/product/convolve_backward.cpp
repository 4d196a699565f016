// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace loom::ops {
namespace {

// Pixels that a block of the weights' gradient takes at a time.
constexpr std::int64_t kPixelsAtOnce = 512;
// Images of so many pixels are taken one by one; smaller ones have their gradients put together.
constexpr std::int64_t kLargePlane = 256;
// Elements that are worth handing to another core to copy.
constexpr std::int64_t kCopied = 64 * 1024;
// A cache line more, so that rows do not all begin in the same set of the cache.
constexpr std::int64_t kLine = 16;

// Weights that a block with few pixels packs at a time.
constexpr std::int64_t kPackedRows = 512;
constexpr std::int64_t kPackedColumns = 4 * kPanel;

const Scratch t_shared, t_left, t_columns, t_turned, t_sums;

/// Ranges of pixels whose columns are made together, and their columns.
struct PixelRanges {
  std::vector<Blocks::Range> ranges;
  std::vector<Columns> columns;
};

PixelRanges pixel_ranges(const Windows& windows) {
  PixelRanges made;
  const std::int64_t plane = windows.result_plane();
  const std::int64_t stretch = plane >= kLargePlane ? plane : windows.pixels();
  for (std::int64_t begin = 0; begin < windows.pixels(); begin += stretch) {
    for (std::int64_t at = 0; at < stretch; at += kPixelsAtOnce) {
      const std::int64_t count = std::min(kPixelsAtOnce, stretch - at);
      made.ranges.push_back({begin + at, begin + at + count});
      made.columns.emplace_back(windows, begin + at, count);
    }
  }
  return made;
}

// gradient[filter][pixel] of all images: in place if there is one, or images are large.
struct GradientRows {
  const float* data;
  std::int64_t filters, plane, ld;
  bool packed;

  [[nodiscard]] MatrixView<const float> part(std::int64_t filter, std::int64_t rows,
                                             Blocks::Range pixels) const {
    const std::int64_t first =
        packed ? pixels.first : pixels.first / plane * filters * plane + pixels.first % plane;
    return {data + filter * ld + first, rows, pixels.count(), ld, 1};
  }
};

GradientRows gradient_rows(Grid& grid, const float* gradient, std::int64_t filters,
                           const Windows& windows) {
  const std::int64_t plane = windows.result_plane(), pixels = windows.pixels();
  if (windows.images == 1 || plane >= kLargePlane) return {gradient, filters, plane, plane, false};
  const std::int64_t ld = pixels + kLine;
  float* to = t_shared.get<float>(filters * ld);
  const Blocks blocks(filters, std::max<std::int64_t>(kCopied / pixels, 1));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const auto [first, last] = blocks[index];
    for (std::int64_t image = 0; image < windows.images; ++image) {
      for (std::int64_t f = first; f < last; ++f) {
        std::copy_n(gradient + (image * filters + f) * plane, plane, to + f * ld + image * plane);
      }
    }
  });
  return {to, filters, plane, ld, true};
}

// gradient[filter][pixel] in panels of kPanel pixels.
const float* gradient_panels(Grid& grid, const float* gradient, std::int64_t filters,
                             const Windows& windows) {
  const std::int64_t plane = windows.result_plane(), pixels = windows.pixels();
  const std::int64_t panels = ceil_div(pixels, kPanel);
  float* to = t_shared.get<float>(panels * filters * kPanel);
  const Blocks blocks(panels, std::max<std::int64_t>(kCopied / (filters * kPanel), 1));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const auto [first, last] = blocks[index];
    for (std::int64_t panel = first; panel < last; ++panel) {
      const std::int64_t pixel = panel * kPanel;
      for_each_image(windows, pixel, std::min(kPanel, pixels - pixel), [&](const ImageRun& run) {
        const float* from = gradient + run.image * filters * plane + run.pixel;
        float* row = to + panel * filters * kPanel + run.column;
        for (std::int64_t f = 0; f < filters; ++f) {
          std::copy_n(from + f * plane, run.count, row + f * kPanel);
        }
      });
    }
  });
  return to;
}

/// Channels of a block: as many as have kTileRows rows, or fewer if two cores then share better.
std::int64_t channels_of_block(std::int64_t channels, std::int64_t taps) {
  const std::int64_t most = std::clamp<std::int64_t>(kTileRows / taps, 1, channels);
  std::int64_t best = most, least = channels + 1;
  for (std::int64_t length = most; 2 * length >= most && length > 0; --length) {
    const std::int64_t longest = ceil_div(ceil_div(channels, length), 2) * length;
    if (longest < least) {
      best = length;
      least = longest;
    }
  }
  return best;
}

/// What image gradients are added to: zeros, or what is transposed has a bias of each channel.
struct Images {
  float* data;
  const float* bias;
  const Windows& windows;

  void start(Blocks::Range images, Blocks::Range channels) const {
    const std::int64_t plane = windows.plane();
    for (std::int64_t image = images.first; image < images.last; ++image) {
      for (std::int64_t c = channels.first; c < channels.last; ++c) {
        std::fill_n(data + (image * windows.channels + c) * plane, plane,
                    bias != nullptr ? bias[c] : 0.F);
      }
    }
  }
  void finish(const Grid& grid, Blocks::Range images, Blocks::Range channels) const {
    for (std::int64_t image = images.first; image < images.last; ++image) {
      grid.finish(image * windows.channels + channels.first, channels.count(), 0, windows.plane());
    }
  }
};

/// Images whose pixels are whole panels, so that blocks may have some of them; where channels are
/// enough for the cores to share, all images.
Blocks images_of_blocks(const Windows& windows, std::int64_t channel_blocks) {
  constexpr std::int64_t kFewBlocks = 8;
  const std::int64_t together = kPanel / std::gcd(kPanel, windows.result_plane());
  if (channel_blocks >= kFewBlocks) return {windows.images, windows.images};
  const std::int64_t cuts = ceil_div(kFewBlocks, channel_blocks);
  return {windows.images, round_up(ceil_div(windows.images, cuts), together)};
}

// Long pieces of the weights' rows, which lie far from each other, as panels beside each other.
void pack_rows(const MatrixView<const float>& from, float* to) {
  for (std::int64_t k = 0; k < from.rows; ++k) {
    for (std::int64_t j = 0; j < from.columns; j += kPanel) {
      std::copy_n(from.data + k * from.row_stride + j, std::min(kPanel, from.columns - j),
                  to + j * from.rows + k * kPanel);
    }
  }
}

// Few pixels: the weights are used as they lie, and the product, which is small, is turned.
void image_gradient_of_few(Grid& grid, const Images& images, const TensorRef& gradient,
                           const TensorRef& weights) {
  const Windows& windows = images.windows;
  const std::int64_t filters = weights.sizes()[0], inner = windows.rows(), taps = windows.taps();
  const std::int64_t pixels = windows.pixels(), ld = filters + kLine;
  const float* panel = gradient_panels(grid, elements<float>(gradient), filters, windows);
  float* left = t_left.get<float>(pixels * ld);
  transpose(filters, pixels, panel, kPanel, left, ld);
  const Columns columns(windows, 0, pixels);
  const std::int64_t most = std::max<std::int64_t>(kPackedColumns / taps, 1);
  const std::int64_t count = round_up(ceil_div(windows.channels, most), 2);
  const Blocks channels(windows.channels, ceil_div(windows.channels, count));
  grid.run_by_any(channels.count(), [&](std::int64_t index) {
    const Blocks::Range range = channels[index];
    const std::int64_t width = range.count() * taps, panels = round_up(width, kPanel);
    float* packed = t_columns.get<float>(kPackedRows * panels);
    float* sums = t_sums.get<float>(kPanel * panels);
    float* turned = t_turned.get<float>(kPanel * kPanel);
    images.start({0, windows.images}, range);
    for (std::int64_t k = 0; k < filters; k += kPackedRows) {
      const std::int64_t depth = std::min(kPackedRows, filters - k);
      pack_rows({elements<float>(weights) + k * inner + range.first * taps, depth, width, inner, 1},
                packed);
      for (std::int64_t j = 0; j < width; j += kPanel) {
        multiply_rows({left + k, pixels, depth, ld, 1},
                      {packed + j * depth, depth, std::min(kPanel, width - j), kPanel, 1},
                      sums + j * kPanel, kPanel, k > 0);
      }
    }
    for (std::int64_t j = 0; j < width; j += kPanel) {
      const std::int64_t rows = std::min(kPanel, width - j);
      transpose(pixels, rows, sums + j * kPanel, kPanel, turned, kPanel);
      columns.add(turned, kPanel, range.first * taps + j, rows, images.data);
    }
    images.finish(grid, {0, windows.images}, range);
  });
}

}  // namespace

void make_panels(Grid& grid, const Windows& windows, const float* images, float* to) {
  const std::int64_t pixels = windows.pixels(), inner = windows.rows();
  const Blocks panels(pixels, kPanel);
  const Blocks rows(inner, std::max<std::int64_t>(kCopied / std::min(pixels, kPanel), 1));
  grid.run_by_any(panels.count() * rows.count(), [&](std::int64_t index) {
    const std::int64_t panel = index / rows.count();
    const Blocks::Range pixel = panels[panel], row = rows[index % rows.count()];
    Columns(windows, pixel.first, pixel.count())
        .make(images, row.first, row.count(), to + (panel * inner + row.first) * kPanel, kPanel);
  });
}

// A block has some columns of the result: rows of what the pixels see, turned.
void convolve_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                              const TensorRef& images, const Windows& windows) {
  const std::int64_t filters = result.sizes()[0], inner = windows.rows();
  const GradientRows left = gradient_rows(grid, elements<float>(gradient), filters, windows);
  const PixelRanges pixels = pixel_ranges(windows);
  const Blocks columns(inner, kPanel);
  // Filters are cut where there are too few columns to share: columns are made again there.
  const Blocks rows(filters, columns.count() >= 6 || filters < kTileRows
                                 ? filters
                                 : round_up(ceil_div(filters, 2), 16));
  grid.run_by_any(columns.count() * rows.count(), [&](std::int64_t index) {
    const auto [first, last] = columns[index / rows.count()];
    const auto [begin, end] = rows[index % rows.count()];
    const std::int64_t width = last - first;
    bool add = false;
    for (std::size_t i = 0; i < pixels.ranges.size(); ++i) {
      const Blocks::Range range = pixels.ranges[i];
      const std::int64_t count = range.count(), ld = count + kLine;
      float* made = t_columns.get<float>(kPanel * (kPixelsAtOnce + kLine));
      float* turned = t_turned.get<float>(kPixelsAtOnce * kPanel);
      pixels.columns[i].make(elements<float>(images), first, width, made, ld);
      transpose(width, count, made, ld, turned, kPanel);
      for (std::int64_t f = begin; f < end; f += kTileRows) {
        multiply_rows(left.part(f, std::min(kTileRows, end - f), range),
                      {turned, count, width, kPanel, 1},
                      elements<float>(result) + f * inner + first, inner, add);
      }
      add = true;
    }
  });
}

// A block has some channels of the images: their weights, turned, are what it multiplies with.
void convolve_transposed_columns(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                                 const TensorRef& weights, const TensorRef& bias,
                                 const Windows& windows) {
  const Images images{elements<float>(result), bias.defined() ? elements<float>(bias) : nullptr,
                      windows};
  if (windows.pixels() <= kPanel) return image_gradient_of_few(grid, images, gradient, weights);
  const std::int64_t filters = weights.sizes()[0], inner = windows.rows(), taps = windows.taps();
  const std::int64_t pixels = windows.pixels(), plane = windows.result_plane();
  const float* right = gradient_panels(grid, elements<float>(gradient), filters, windows);
  std::vector<Columns> columns;
  for (std::int64_t pixel = 0; pixel < pixels; pixel += kPanel) {
    columns.emplace_back(windows, pixel, std::min(kPanel, pixels - pixel));
  }
  const Blocks channels(windows.channels, channels_of_block(windows.channels, taps));
  const Blocks parts = images_of_blocks(windows, channels.count());
  const std::int64_t ld = filters + kLine, chunk = inner_chunk(filters);
  grid.run_by_any(channels.count() * parts.count(), [&](std::int64_t index) {
    const Blocks::Range some = channels[index / parts.count()], part = parts[index % parts.count()];
    const std::int64_t first = part.first * plane / kPanel,
                       last = ceil_div(part.last * plane, kPanel);
    images.start(part, some);
    for (std::int64_t row = some.first * taps; row < some.last * taps; row += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, some.last * taps - row);
      float* turned = t_turned.get<float>(kTileRows * ld);
      float* sums = t_sums.get<float>(kTileRows * kPanel);
      transpose(filters, rows, elements<float>(weights) + row, inner, turned, ld);
      for (std::int64_t panel = first; panel < last; ++panel) {
        const Columns& seen = columns[static_cast<std::size_t>(panel)];
        const float* of = right + panel * filters * kPanel;
        for (std::int64_t k = 0; k < filters; k += chunk) {
          const std::int64_t depth = std::min(chunk, filters - k);
          multiply_rows({turned + k, rows, depth, ld, 1},
                        {of + k * kPanel, depth, seen.pixels(), kPanel, 1}, sums, kPanel, k > 0);
        }
        seen.add(sums, kPanel, row, rows, images.data);
      }
    }
    images.finish(grid, part, some);
  });
}

void convolve_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                             const TensorRef& weights, const Windows& windows) {
  convolve_transposed_columns(grid, result, gradient, weights, TensorRef(), windows);
}

}  // namespace loom::ops
