// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/convolve_taps.h"

#include "loom/kernels/copy/transpose_tile.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"

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
// Gradients of so many weights are written past the caches: nobody reads them soon.
constexpr std::int64_t kStreamed = 256 * 1024;
// A cache line more, so that rows do not all begin in the same set of the cache.
constexpr std::int64_t kLine = 16;

const Scratch t_rows, t_others, t_turned, t_sums;

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

/// Pixels as rows: data[(pixel * images + image) * ld + channel].
struct PixelRows {
  const float* data;
  std::int64_t ld;
};

PixelRows pixel_rows(Grid& grid, const float* from, std::int64_t images, std::int64_t channels,
                     std::int64_t plane, const Scratch& scratch) {
  const std::int64_t ld = channels + kLine;
  float* to = scratch.get<float>(images * plane * ld);
  grid.run_by_any(images, [&](std::int64_t image) {
    transpose(channels, plane, from + image * channels * plane, plane, to + image * ld,
              images * ld);
  });
  return {to, ld};
}

/// Pixels as columns: data[channel * ld + pixel * images + image].
PixelRows pixel_columns(Grid& grid, const float* from, std::int64_t images, std::int64_t channels,
                        std::int64_t plane, const Scratch& scratch) {
  const std::int64_t ld = images * plane + kLine;
  float* to = scratch.get<float>(channels * ld);
  const Blocks blocks(channels, std::max<std::int64_t>(16384 / (images * plane), 1));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    for (std::int64_t c = blocks[index].first; c < blocks[index].last; ++c) {
      transpose(images, plane, from + c * plane, channels * plane, to + c * ld, images);
    }
  });
  return {to, ld};
}

std::int64_t width_of_block(std::int64_t channels) {
  return channels >= kManyChannels ? kPanel : kPanel / 2;
}

/// Neighbouring rows of the weights, and a piece of each.
struct WeightPart {
  const float* data;
  std::int64_t rows, length;
};

/// One side of a convolution's pixels from the other's: for each block of channels that are made, a
/// product for each tap and run.
struct TapProducts {
  const std::vector<Runs>& runs;
  const Windows& windows;
  std::int64_t filters;
  bool turned;  ///< the images are made, from the result's side
  const float *weights, *bias;
  float* to;

  void run(Grid& grid, const PixelRows& rows) const {
    const std::int64_t made = turned ? windows.channels : filters;
    const Blocks blocks(made, width_of_block(made));
    grid.run_by_any(blocks.count(),
                    [&](std::int64_t index) { run_block(rows, made, blocks[index]); });
  }

 private:
  void run_block(const PixelRows& rows, std::int64_t made, Blocks::Range range) const {
    const std::int64_t images = windows.images, taps = windows.taps();
    const std::int64_t read = turned ? filters : windows.channels;
    const std::int64_t plane = turned ? windows.plane() : windows.result_plane();
    float* sums = t_sums.get<float>(plane * images * kPanel);
    float* panel = t_turned.get<float>(kDepth * taps * kPanel);
    begin(sums, plane * images, range);
    for (std::int64_t k = 0; k < read; k += kDepth) {
      const std::int64_t depth = std::min(kDepth, read - k);
      pack(part(k, depth, range), panel);
      const WeightPart next = part(k + depth, std::min(kDepth, read - k - depth), range);
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        prefetch(next, tap);
        for (const Run& run : runs[static_cast<std::size_t>(tap)]) {
          const std::int64_t from = turned ? run.result : run.image;
          const std::int64_t at = turned ? run.image : run.result;
          multiply_rows(
              {rows.data + from * images * rows.ld + k, run.count * images, depth, rows.ld, 1},
              {panel + tap * kPanel, depth, range.count(), taps * kPanel, 1},
              sums + at * images * kPanel, kPanel, true);
        }
      }
    }
    for (std::int64_t image = 0; image < images; ++image) {
      transpose(plane, range.count(), sums + image * kPanel, images * kPanel,
                to + (image * made + range.first) * plane, plane);
    }
  }

  void begin(float* sums, std::int64_t rows, Blocks::Range range) const {
    std::fill_n(sums, rows * kPanel, 0.F);
    if (bias == nullptr) return;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(bias + range.first, range.count(), sums + row * kPanel);
    }
  }

  /// The weights of some channels that are read, and of a block's.
  [[nodiscard]] WeightPart part(std::int64_t first, std::int64_t depth, Blocks::Range range) const {
    const std::int64_t row = turned ? first : range.first, rows = turned ? depth : range.count();
    const std::int64_t column = turned ? range.first : first;
    const std::int64_t columns = turned ? range.count() : depth;
    return {weights + (row * windows.channels + column) * windows.taps(), rows,
            columns * windows.taps()};
  }

  /// to[(channel that is read * taps + tap) * kPanel + channel that is made].
  void pack(const WeightPart& part, float* panel) const {
    const std::int64_t taps = windows.taps();
    if (!turned) return transpose(part.rows, part.length, part.data, windows.rows(), panel, kPanel);
    for (std::int64_t f = 0; f < part.rows; ++f) {
      transpose(part.length / taps, taps, part.data + f * windows.rows(), taps,
                panel + f * taps * kPanel, kPanel);
    }
  }

  /// A share of the weights that are packed next. They are not in the cache, and the pieces are too
  /// far from each other for the processor to guess them.
  void prefetch(const WeightPart& part, std::int64_t tap) const {
    const std::int64_t taps = windows.taps();
    for (std::int64_t row = part.rows * tap / taps; row < part.rows * (tap + 1) / taps; ++row) {
      const float* data = part.data + row * windows.rows();
      for (std::int64_t at = 0; at < part.length; at += kLine) __builtin_prefetch(data + at, 0, 2);
    }
  }
};

// to[j * ld + i] = from[i * kPanel + j]. `streaming`: past the caches, all rows being whole lines.
void put_turned(const float* from, std::int64_t count, std::int64_t rows, float* to,
                std::int64_t ld, bool streaming) {
  if (!streaming) return transpose(count, rows, from, kPanel, to, ld);
  const std::int64_t turned_ld = count + kLine;
  float* turned = t_sums.get<float>(kPanel * turned_ld);
  transpose(count, rows, from, kPanel, turned, turned_ld);
  for (std::int64_t row = 0; row < rows; ++row) {
    kernels::stream_lines(reinterpret_cast<std::byte*>(to + row * ld),
                          reinterpret_cast<const std::byte*>(turned + row * turned_ld),
                          static_cast<std::size_t>(count) * sizeof(float));
  }
  kernels::end_streaming();
}

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
  const PixelRows rows = pixel_rows(grid, elements<float>(images), windows.images, windows.channels,
                                    windows.plane(), t_rows);
  const std::vector<Runs> runs = runs_of(windows);
  TapProducts{runs,
              windows,
              weights.sizes()[0],
              false,
              elements<float>(weights),
              elements<float>(bias),
              elements<float>(result)}
      .run(grid, rows);
}

void taps_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                         const TensorRef& weights, const Windows& windows) {
  const std::int64_t filters = weights.sizes()[0];
  const PixelRows rows = pixel_rows(grid, elements<float>(gradient), windows.images, filters,
                                    windows.result_plane(), t_rows);
  const std::vector<Runs> runs = runs_of(windows);
  TapProducts{
      runs, windows, filters, true, elements<float>(weights), nullptr, elements<float>(result)}
      .run(grid, rows);
}

// A block has some filters, and makes turned weights of some channels at a time.
void taps_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                          const TensorRef& images, const Windows& windows) {
  const std::int64_t filters = result.sizes()[0], inner = windows.rows(), taps = windows.taps();
  const std::int64_t channels = windows.channels, count = windows.images;
  const PixelRows left =
      pixel_columns(grid, elements<float>(images), count, channels, windows.plane(), t_rows);
  const PixelRows right =
      pixel_rows(grid, elements<float>(gradient), count, filters, windows.result_plane(), t_others);
  const std::vector<Runs> runs = runs_of(windows);
  const Blocks blocks(filters, width_of_block(filters));
  const bool streaming = filters * inner >= kStreamed && inner % 16 == 0 &&
                         reinterpret_cast<std::uintptr_t>(result.data()) % 64 == 0;
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
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
      put_turned(made, depth * taps, last - first,
                 elements<float>(result) + first * inner + c * taps, inner, streaming);
    }
  });
}

}  // namespace loom::ops
