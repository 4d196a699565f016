// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/convolve_taps.h"

#include "loom/ops/product/convolve_parts.h"
#include "loom/ops/product/multiply.h"

#include <algorithm>
#include <vector>

namespace loom::ops {
namespace {

// Where a larger share of the taps sees something, columns or tiles are faster. So they are with
// strides: there pixels have no neighbours that see neighbours.
constexpr double kMostSeen = 0.75;
// With fewer images products are small, fewer channels do not make up for turning weights.
constexpr std::int64_t kFewestImages = 4, kFewestChannels = 32;
constexpr std::int64_t kMostPixels = 1024;
// Weights that a block turns at a time, of each filter or channel: with their taps they stay in L2.
constexpr std::int64_t kDepth = 64;
constexpr std::int64_t kGradientDepth = 128;
// Result channels of a block: a panel, or half of one if there are few.
constexpr std::int64_t kManyChannels = 512;
// A cache line more, so that rows do not all begin in the same set of the cache.
constexpr std::int64_t kLine = 16;

thread_local Scratch t_rows, t_others, t_turned, t_sums;

/// Neighbours that see neighbours through one tap. Pixels are counted within the image.
struct Run {
  std::int64_t result, image, count;
};
using Runs = std::vector<Run>;

/// For each tap what sees something through it.
std::vector<Runs> runs_of(const Windows& windows) {
  const WindowAxis &ys = windows.y, &xs = windows.x;
  std::vector<Runs> made(static_cast<std::size_t>(windows.taps()));
  for (std::int64_t tap = 0; tap < windows.taps(); ++tap) {
    Runs& runs = made[static_cast<std::size_t>(tap)];
    for (std::int64_t pixel = 0; pixel < windows.result_plane(); ++pixel) {
      const std::int64_t y = pixel / xs.result * ys.stride + tap / xs.kernel * ys.dilation;
      const std::int64_t x = pixel % xs.result * xs.stride + tap % xs.kernel * xs.dilation;
      const std::int64_t row = y - ys.padding, column = x - xs.padding;
      if (row < 0 || row >= ys.size || column < 0 || column >= xs.size) continue;
      const std::int64_t image = row * xs.size + column;
      if (!runs.empty() && runs.back().result + runs.back().count == pixel &&
          runs.back().image + runs.back().count == image) {
        ++runs.back().count;
      } else {
        runs.push_back({pixel, image, 1});
      }
    }
  }
  return made;
}

std::int64_t seen(const WindowAxis& axis) {
  std::int64_t count = 0;
  for (std::int64_t at = 0; at < axis.result; ++at) {
    for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
      const std::int64_t place = at * axis.stride + tap * axis.dilation - axis.padding;
      count += place >= 0 && place < axis.size ? 1 : 0;
    }
  }
  return count;
}

const float* elements(const TensorRef& tensor) {
  return tensor.defined() ? reinterpret_cast<const float*>(tensor.data()) : nullptr;
}
float* to_elements(const TensorRef& tensor) { return reinterpret_cast<float*>(tensor.data()); }

/// Pixels as rows: data[(pixel * images + image) * ld + channel].
struct PixelRows {
  const float* data;
  std::int64_t ld;
};

PixelRows pixel_rows(Grid& grid, const float* from, std::int64_t images, std::int64_t channels,
                     std::int64_t plane, Scratch& scratch) {
  const std::int64_t ld = channels + kLine;
  float* to = scratch.get<float>(images * plane * ld);
  grid.run(images, [&](std::int64_t image) {
    transpose(channels, plane, from + image * channels * plane, plane, to + image * ld,
              images * ld);
  });
  return {to, ld};
}

/// Pixels as columns: data[channel * ld + pixel * images + image].
PixelRows pixel_columns(Grid& grid, const float* from, std::int64_t images, std::int64_t channels,
                        std::int64_t plane, Scratch& scratch) {
  const std::int64_t ld = images * plane + kLine;
  float* to = scratch.get<float>(channels * ld);
  const Blocks blocks(channels, std::max<std::int64_t>(16384 / (images * plane), 1));
  grid.run(blocks.count(), [&](std::int64_t index) {
    for (std::int64_t c = blocks[index].first; c < blocks[index].last; ++c) {
      transpose(images, plane, from + c * plane, channels * plane, to + c * ld, images);
    }
  });
  return {to, ld};
}

std::int64_t width_of_block(std::int64_t channels) {
  return channels >= kManyChannels ? kPanel : kPanel / 2;
}

/// One side of a convolution's pixels from the other's: `taps` products for each block of channels.
/// pack(first, depth, channels, to) puts weights of some channels that are read and of a block's
/// into to[(channel read * taps + tap) * kPanel + channel].
struct TapProducts {
  const std::vector<Runs>& runs;
  std::int64_t images, read, made;  ///< of images; channels that are read, and made
  std::int64_t plane;               ///< pixels that are made
  bool turned;                      ///< the images are made, from the result's side
  const float* bias;
  float* to;

  template <class Pack>
  void run(Grid& grid, const PixelRows& rows, Pack&& pack) const {
    const Blocks blocks(made, width_of_block(made));
    const auto taps = static_cast<std::int64_t>(runs.size());
    grid.run(blocks.count(), [&](std::int64_t index) {
      const Blocks::Range range = blocks[index];
      const std::int64_t width = range.count();
      float* sums = t_sums.get<float>(plane * images * kPanel);
      float* panel = t_turned.get<float>(kDepth * taps * kPanel);
      begin(sums, range);
      for (std::int64_t k = 0; k < read; k += kDepth) {
        const std::int64_t depth = std::min(kDepth, read - k);
        pack(k, depth, range, panel);
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          for (const Run& run : runs[static_cast<std::size_t>(tap)]) {
            const std::int64_t from = turned ? run.result : run.image;
            const std::int64_t at = turned ? run.image : run.result;
            multiply_rows(
                {rows.data + from * images * rows.ld + k, run.count * images, depth, rows.ld, 1},
                {panel + tap * kPanel, depth, width, taps * kPanel, 1}, sums + at * images * kPanel,
                kPanel, true);
          }
        }
      }
      for (std::int64_t image = 0; image < images; ++image) {
        transpose(plane, width, sums + image * kPanel, images * kPanel,
                  to + (image * made + range.first) * plane, plane);
      }
    });
  }

 private:
  void begin(float* sums, Blocks::Range range) const {
    std::fill_n(sums, plane * images * kPanel, 0.F);
    if (bias == nullptr) return;
    for (std::int64_t row = 0; row < plane * images; ++row) {
      std::copy_n(bias + range.first, range.count(), sums + row * kPanel);
    }
  }
};

}  // namespace

bool suits_taps(const Windows& windows, std::int64_t filters) {
  const auto all = static_cast<double>(windows.taps() * windows.result_plane());
  return windows.images >= kFewestImages && windows.pixels() <= kMostPixels &&
         windows.images * windows.plane() <= kMostPixels && windows.y.stride == 1 &&
         windows.x.stride == 1 && std::min(windows.channels, filters) >= kFewestChannels &&
         static_cast<double>(seen(windows.y) * seen(windows.x)) <= kMostSeen * all;
}

void convolve_taps(Grid& grid, const TensorRef& result, const TensorRef& images,
                   const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  const std::int64_t filters = weights.sizes()[0], inner = windows.rows(), taps = windows.taps();
  const PixelRows rows =
      pixel_rows(grid, elements(images), windows.images, windows.channels, windows.plane(), t_rows);
  const std::vector<Runs> runs = runs_of(windows);
  const TapProducts products{runs,           windows.images,         windows.channels,
                             filters,        windows.result_plane(), false,
                             elements(bias), to_elements(result)};
  products.run(grid, rows,
               [from = elements(weights), inner, taps](std::int64_t first, std::int64_t depth,
                                                       Blocks::Range filter, float* to) {
                 transpose(filter.count(), depth * taps, from + filter.first * inner + first * taps,
                           inner, to, kPanel);
               });
}

void taps_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                         const TensorRef& weights, const Windows& windows) {
  const std::int64_t filters = weights.sizes()[0], inner = windows.rows(), taps = windows.taps();
  const PixelRows rows =
      pixel_rows(grid, elements(gradient), windows.images, filters, windows.result_plane(), t_rows);
  const std::vector<Runs> runs = runs_of(windows);
  const TapProducts products{
      runs,    windows.images,     filters, windows.channels, windows.plane(), true,
      nullptr, to_elements(result)};
  products.run(grid, rows,
               [from = elements(weights), inner, taps](std::int64_t first, std::int64_t depth,
                                                       Blocks::Range channel, float* to) {
                 for (std::int64_t f = 0; f < depth; ++f) {
                   transpose(channel.count(), taps,
                             from + (first + f) * inner + channel.first * taps, taps,
                             to + f * taps * kPanel, kPanel);
                 }
               });
}

// A block has some filters, and makes turned weights of some channels at a time.
void taps_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                          const TensorRef& images, const Windows& windows) {
  const std::int64_t filters = result.sizes()[0], inner = windows.rows(), taps = windows.taps();
  const std::int64_t channels = windows.channels, count = windows.images;
  const PixelRows left =
      pixel_columns(grid, elements(images), count, channels, windows.plane(), t_rows);
  const PixelRows right =
      pixel_rows(grid, elements(gradient), count, filters, windows.result_plane(), t_others);
  const std::vector<Runs> runs = runs_of(windows);
  const Blocks blocks(filters, width_of_block(filters));
  grid.run(blocks.count(), [&](std::int64_t index) {
    const auto [first, last] = blocks[index];
    float* made = t_turned.get<float>(kGradientDepth * taps * kPanel);
    for (std::int64_t c = 0; c < channels; c += kGradientDepth) {
      const std::int64_t depth = std::min(kGradientDepth, channels - c);
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        bool add = false;
        for (const Run& run : runs[static_cast<std::size_t>(tap)]) {
          const std::int64_t pixels = run.count * count;
          multiply_rows({left.data + c * left.ld + run.image * count, depth, pixels, left.ld, 1},
                        {right.data + run.result * count * right.ld + first, pixels, last - first,
                         right.ld, 1},
                        made + tap * kPanel, taps * kPanel, add);
          add = true;
        }
        if (add) continue;
        for (std::int64_t i = 0; i < depth; ++i) {
          std::fill_n(made + (i * taps + tap) * kPanel, kPanel, 0.F);
        }
      }
      transpose(depth * taps, last - first, made, kPanel,
                to_elements(result) + first * inner + c * taps, inner);
    }
  });
}

}  // namespace loom::ops
