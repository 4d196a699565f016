// SPDX-License-Identifier: BSD-3-Clause
// Gradients of images, which transposed convolutions are: the product of the weights, turned, with
// the gradient has a row for each channel and tap, and each row is added to the images where the
// tap lies.
#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/phases.h"

#include <algorithm>
#include <vector>

namespace loom::ops {
namespace {

// Elements that are worth handing to another core to copy.
constexpr std::int64_t kCopied = 64 * 1024;
// A cache line more, so that rows do not all begin in the same set of the cache.
constexpr std::int64_t kLine = 16;

// Weights that a block with few pixels packs at a time.
constexpr std::int64_t kPackedRows = 512;
constexpr std::int64_t kPackedColumns = 4 * kPanel;

const Scratch t_shared, t_left, t_columns, t_turned, t_sums;

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

/// Rows of the weights, turned: to[row * ld + filter]; row is a channel's tap.
void turn_weights(const float* weights, const Windows& windows, bool last, std::int64_t filters,
                  std::int64_t row, std::int64_t rows, float* to, std::int64_t ld) {
  const std::int64_t inner = windows.rows(), taps = windows.taps();
  if (!last) return transpose(filters, rows, weights + row, inner, to, ld);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* from = weights + (row + i) % taps * windows.channels + (row + i) / taps;
    kernels::copy_steps(filters, from, inner, to + i * ld, 1);
  }
}

}  // namespace

void convolve_transposed(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                         const TensorRef& weights, const TensorRef& bias, const Windows& windows,
                         bool weights_last) {
  const float* biases = bias.defined() ? elements<float>(bias) : nullptr;
  if (windows.pixels() <= kPanel && !windows.channels_last && !weights_last) {
    const Images images{elements<float>(result), biases, windows};
    return image_gradient_of_few(grid, images, gradient, weights);
  }
  const std::int64_t filters = weights.sizes()[0], taps = windows.taps();
  const Phases phases(windows, filters);
  const Blocks channels(windows.channels, channels_of_block(windows.channels, taps));
  const std::vector<Unit> units = phases.units(channels[0].count(), channels.count());
  const auto count = static_cast<std::int64_t>(units.size());
  const auto pack = [&](const Unit& unit, float* to) {
    phases.pack(elements<float>(gradient), unit, to);
  };

  const std::int64_t ld = filters + kLine, chunk = inner_chunk(filters);
  const std::int64_t panel_step = filters * kPanel;
  const auto run = [&](const Unit& unit, Blocks::Range some, const float* packed) {
    Planes planes(phases, unit, some, biases);
    for (std::int64_t row = some.first * taps; row < some.last * taps; row += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, some.last * taps - row);
      float* turned = t_turned.get<float>(kTileRows * ld);
      float* sums = t_sums.get<float>(kTileRows * kPanel);
      turn_weights(elements<float>(weights), windows, weights_last, filters, row, rows, turned, ld);
      for (std::int64_t panel = 0; panel < phases.panels(unit); ++panel) {
        const float* of = packed + panel * panel_step;
        const std::int64_t pixels = std::min(kPanel, phases.pixels(unit) - panel * kPanel);
        for (std::int64_t k = 0; k < filters; k += chunk) {
          const std::int64_t depth = std::min(chunk, filters - k);
          multiply_rows({turned + k, rows, depth, ld, 1},
                        {of + k * kPanel, depth, pixels, kPanel, 1}, sums, kPanel, k > 0);
        }
        planes.add(sums, panel, row - some.first * taps, rows);
      }
    }
    planes.join(elements<float>(result));
    planes.finish(grid);
  };

  if (count >= kFewBlocks || channels.count() == 1) {
    return grid.run_by_any(count, [&](std::int64_t index) {
      const Unit& unit = units[static_cast<std::size_t>(index)];
      float* packed = t_columns.get<float>(phases.panels(unit) * panel_step);
      pack(unit, packed);
      for (std::int64_t i = 0; i < channels.count(); ++i) run(unit, channels[i], packed);
    });
  }
  // Blocks of channels share what is packed.
  const Unit& last = units.back();
  float* all = t_shared.get<float>((last.first_panel + phases.panels(last)) * panel_step);
  grid.run_by_any(count, [&](std::int64_t index) {
    const Unit& unit = units[static_cast<std::size_t>(index)];
    pack(unit, all + unit.first_panel * panel_step);
  });
  grid.run_by_any(channels.count() * count, [&](std::int64_t index) {
    const Unit& unit = units[static_cast<std::size_t>(index % count)];
    run(unit, channels[index / count], all + unit.first_panel * panel_step);
  });
}

void convolve_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                             const TensorRef& weights, const Windows& windows) {
  convolve_transposed(grid, result, gradient, weights, TensorRef(), windows, false);
}

}  // namespace loom::ops
