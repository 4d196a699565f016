// SPDX-License-Identifier: BSD-3-Clause
// Depthwise convolutions in channels_last, row by row.
#include "loom/kernels/conv/depthwise_last.h"

#include "loom/device/scratch.h"
#include "loom/kernels/conv/depthwise.h"
#include "loom/kernels/conv/depthwise_filters.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/norm/sums.h"
#include "loom/ops/recipes/depthwise/depthwise.h"
#include "loom/ops/recipes/depthwise/depthwise_parts.h"
#include "loom/ops/recipes/product/convolve_parts.h"

#include <array>

namespace loom::ops {
namespace {

namespace conv = kernels::conv;

const Scratch t_weights, t_bias, t_sums;

// Each part of the gradient of the weights is as large as they are.
constexpr std::int64_t kMostParts = 16;

/// A tap of pixels in a row, of which those inside see it: the first pixel of the row would see it
/// at `image`.
struct RowTap {
  std::int64_t image, weight;
  Blocks::Range inside;
};

/// Pixels [0, count) for which from + pixel * stride is in [0, size).
Blocks::Range pixels_inside(std::int64_t from, std::int64_t stride, std::int64_t size,
                            std::int64_t count) {
  const std::int64_t first = from >= 0 ? 0 : std::min(ceil_div(-from, stride), count);
  const std::int64_t last = from >= size ? 0 : ceil_div(size - from, stride);
  return {first, std::clamp(last, first, count)};
}

/// The taps of a row of pixels.
class RowTaps {
 public:
  void add(const RowTap& tap) { taps_[count_++] = tap; }

  /// Calls function(first pixel, run) for pixels that see the same taps: those in the middle, which
  /// see all of them, and each one beside.
  template <class Function>
  void for_each_run(conv::PointRun run, std::int64_t pixels, Function&& function) const {
    Blocks::Range middle{0, pixels};
    for (std::size_t i = 0; i < count_; ++i) {
      middle.first = std::max(middle.first, taps_[i].inside.first);
      middle.last = std::min(middle.last, taps_[i].inside.last);
    }
    if (middle.first >= middle.last) middle = {pixels, pixels};
    const auto call = [&](std::int64_t first, std::int64_t count) {
      std::array<conv::PointTap, conv::kMostDepthwiseTaps> taps;
      std::size_t seen = 0;
      for (std::size_t i = 0; i < count_; ++i) {
        const RowTap& tap = taps_[i];
        if (first < tap.inside.first || first >= tap.inside.last) continue;
        taps[seen++] = {tap.image + first * run.image_step, tap.weight};
      }
      run.taps = taps.data();
      run.count = static_cast<std::int64_t>(seen);
      run.pixels = count;
      function(first, run);
    };
    for (std::int64_t p = 0; p < middle.first; ++p) call(p, 1);
    if (middle.count() > 0) call(middle.first, middle.count());
    for (std::int64_t p = middle.last; p < pixels; ++p) call(p, 1);
  }

 private:
  std::array<RowTap, conv::kMostDepthwiseTaps> taps_;
  std::size_t count_ = 0;
};

/// What a row of the result sees of an image.
RowTaps taps_of_row(const Windows& windows, std::int64_t row) {
  const WindowAxis &ys = windows.y, &xs = windows.x;
  const std::int64_t channels = windows.channels;
  RowTaps made;
  for (std::int64_t i = 0; i < ys.kernel; ++i) {
    const std::int64_t y = row * ys.stride - ys.padding + i * ys.dilation;
    if (y < 0 || y >= ys.size) continue;
    for (std::int64_t j = 0; j < xs.kernel; ++j) {
      const std::int64_t x = j * xs.dilation - xs.padding;
      made.add({(y * xs.size + x) * channels, (i * xs.kernel + j) * channels,
                pixels_inside(x, xs.stride, xs.size, xs.result)});
    }
  }
  return made;
}

/// Which pixels of a result see pixels first, first + stride, ... of a row of an image, and
/// through which taps.
RowTaps taps_of_gradient(const Windows& windows, std::int64_t row, std::int64_t first,
                         std::int64_t pixels) {
  const WindowAxis &ys = windows.y, &xs = windows.x;
  const std::int64_t channels = windows.channels;
  RowTaps made;
  for (std::int64_t i = 0; i < ys.kernel; ++i) {
    const std::int64_t y = row + ys.padding - i * ys.dilation;
    if (y < 0 || y % ys.stride != 0 || y / ys.stride >= ys.result) continue;
    for (std::int64_t j = 0; j < xs.kernel; ++j) {
      const std::int64_t x = first + xs.padding - j * xs.dilation;
      if (x % xs.stride != 0) continue;
      made.add({(y / ys.stride * xs.result + x / xs.stride) * channels,
                (i * xs.kernel + j) * channels,
                pixels_inside(x / xs.stride, 1, xs.result, pixels)});
    }
  }
  return made;
}

// Of a filter for each channel, a row of channels for each tap.
template <class T>
const float* turned(const T* weights, const Windows& windows) {
  const std::int64_t channels = windows.channels, taps = windows.taps();
  float* made = t_weights.get<float>(channels * taps);
  conv::filters_by_taps(weights, channels, taps, /*flipped=*/false, made, channels);
  return made;
}

template <class T>
const float* widened(const T* bias, std::int64_t channels) {
  if (bias == nullptr) return nullptr;
  float* made = t_bias.get<float>(channels);
  kernels::widen_row<T>(made, bias, channels);
  return made;
}

double row_work(std::int64_t pixels, const Windows& windows) {
  return static_cast<double>(pixels * windows.channels) *
         (static_cast<double>(windows.taps()) + 2 * kDepthwiseMove);
}

template <class T>
void run_forward(Grid& grid, const TensorRef& result, const TensorRef& images,
                 const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  const std::int64_t channels = windows.channels, columns = windows.x.result;
  const float* by_taps = turned(elements<const T>(weights), windows);
  const float* first = widened(elements<const T>(bias), channels);
  const conv::PointRun run{.taps = nullptr,
                           .count = 0,
                           .pixels = 0,
                           .step = channels,
                           .image_step = windows.x.stride * channels,
                           .channels = channels};
  const std::int64_t rows = windows.images * windows.y.result;
  const double work = row_work(columns, windows) * static_cast<double>(rows);
  const Blocks bands(rows, ceil_div(rows, depthwise_blocks(work)));
  grid.run_by_any(bands.count(), [&](std::int64_t index) {
    const Blocks::Range band = bands[index];
    for (std::int64_t row = band.first; row < band.last; ++row) {
      const T* from =
          elements<const T>(images) + row / windows.y.result * windows.plane() * channels;
      T* to = elements<T>(result) + row * columns * channels;
      taps_of_row(windows, row % windows.y.result)
          .for_each_run(run, columns, [&](std::int64_t pixel, const conv::PointRun& some) {
            conv::depthwise_points<T>(from, by_taps, first, some, to + pixel * channels);
          });
    }
    grid.finish(band.first * columns, band.count() * columns, 0, channels);
  });
}

template <class T>
void run_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                        const TensorRef& weights, const Windows& windows) {
  const std::int64_t channels = windows.channels, columns = windows.x.size;
  const std::int64_t stride = windows.x.stride;
  const float* by_taps = turned(elements<const T>(weights), windows);
  const conv::PointRun run{.taps = nullptr,
                           .count = 0,
                           .pixels = 0,
                           .step = stride * channels,
                           .image_step = channels,
                           .channels = channels};
  const std::int64_t rows = windows.images * windows.y.size;
  const double work = row_work(windows.x.result, windows) * static_cast<double>(rows);
  const Blocks bands(rows, ceil_div(rows, depthwise_blocks(work)));
  grid.run_by_any(bands.count(), [&](std::int64_t index) {
    const Blocks::Range band = bands[index];
    for (std::int64_t row = band.first; row < band.last; ++row) {
      const T* from =
          elements<const T>(gradient) + row / windows.y.size * windows.result_plane() * channels;
      T* to = elements<T>(result) + row * columns * channels;
      for (std::int64_t x = 0; x < std::min(stride, columns); ++x) {
        const std::int64_t pixels = ceil_div(columns - x, stride);
        taps_of_gradient(windows, row % windows.y.size, x, pixels)
            .for_each_run(run, pixels, [&](std::int64_t pixel, const conv::PointRun& some) {
              conv::depthwise_points<T>(from, by_taps, nullptr, some,
                                        to + (x + pixel * stride) * channels);
            });
      }
    }
  });
}

template <class T>
void run_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                         const TensorRef& images, const Windows& windows) {
  const std::int64_t channels = windows.channels, taps = windows.taps();
  const std::int64_t columns = windows.x.result, rows = windows.images * windows.y.result;
  const conv::PointRun run{.taps = nullptr,
                           .count = 0,
                           .pixels = 0,
                           .step = channels,
                           .image_step = windows.x.stride * channels,
                           .channels = channels};
  const double work = row_work(columns, windows) * static_cast<double>(rows);
  const std::int64_t wanted = std::min(depthwise_blocks(work), kMostParts);
  const Blocks bands(rows, ceil_div(rows, wanted));
  const std::int64_t part = taps * channels;
  float* parts = t_sums.get<float>((bands.count() + 1) * part);
  grid.run_by_any(bands.count(), [&](std::int64_t index) {
    const Blocks::Range band = bands[index];
    float* sums = parts + index * part;
    std::fill_n(sums, part, 0.F);
    for (std::int64_t row = band.first; row < band.last; ++row) {
      const T* from =
          elements<const T>(images) + row / windows.y.result * windows.plane() * channels;
      const T* grad = elements<const T>(gradient) + row * columns * channels;
      taps_of_row(windows, row % windows.y.result)
          .for_each_run(run, columns, [&](std::int64_t pixel, const conv::PointRun& some) {
            conv::add_depthwise_point_taps<T>(from, grad + pixel * channels, some, sums);
          });
    }
  });
  float* whole = parts + bands.count() * part;
  std::fill_n(whole, part, 0.F);
  kernels::norm::add_rows<float>(parts, bands.count(), part, whole, part);
  conv::filters_by_channels(whole, channels, taps, elements<T>(result));
}

}  // namespace

void depthwise_last(Grid& grid, const TensorRef& result, const TensorRef& images,
                    const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run_forward<decltype(zero)>(grid, result, images, weights, bias, windows);
  });
}

void depthwise_last_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                                   const TensorRef& weights, const Windows& windows) {
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run_image_gradient<decltype(zero)>(grid, result, gradient, weights, windows);
  });
}

void depthwise_last_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                                    const TensorRef& images, const Windows& windows) {
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run_weight_gradient<decltype(zero)>(grid, result, gradient, images, windows);
  });
}

}  // namespace loom::ops
