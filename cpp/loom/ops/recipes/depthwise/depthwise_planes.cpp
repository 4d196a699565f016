// SPDX-License-Identifier: BSD-3-Clause
// Depthwise convolutions in the default layout, plane by plane.
#include "loom/device/scratch.h"
#include "loom/kernels/conv/depthwise_filters.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/copy/rows.h"
#include "loom/ops/recipes/depthwise/depthwise.h"
#include "loom/ops/recipes/depthwise/depthwise_parts.h"
#include "loom/ops/recipes/depthwise/depthwise_plane.h"

#include <array>
#include <type_traits>
#include <vector>

namespace loom::ops {
namespace {

using Weights = std::array<float, kernels::conv::kMostDepthwiseTaps>;

// Elements of the result that are near when what follows goes through them. To begin with a
// rectangle takes as long as some hundred of them: 16 KB at a time took a fifth longer than 64.
constexpr std::int64_t kNearPixels = 16384;

const Scratch t_parts;

template <class T>
Weights widened(const T* weights, std::int64_t count) {
  Weights made;
  kernels::widen_row<T>(made.data(), weights, count);
  return made;
}

/// What a plane of the result costs (depthwise_parts.h).
double plane_work(const Windows& windows) {
  const auto pixels = static_cast<double>(windows.result_plane());
  return pixels * static_cast<double>(windows.taps()) +
         kDepthwiseMove * (pixels + static_cast<double>(windows.plane()));
}

template <class T>
void run_forward(Grid& grid, const TensorRef& result, const TensorRef& images,
                 const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  const std::int64_t filters = result.sizes()[1], count = windows.images * filters;
  const std::int64_t taps = windows.taps(), rows = windows.y.result, columns = windows.x.result;
  const DepthwisePlane plane(windows.y, windows.x);
  const auto run = [&](std::int64_t index, Blocks::Range band) {
    const std::int64_t filter = index % filters;
    const std::int64_t channel = filter / (filters / windows.channels);
    const T* from = elements<const T>(images) +
                    (index / filters * windows.channels + channel) * windows.plane();
    const T* const some = elements<const T>(weights) + filter * taps;
    const float first = bias.defined() ? simd::widen(elements<const T>(bias)[filter]) : 0.F;
    T* const to = elements<T>(result) + index * rows * columns;
    if constexpr (std::is_same_v<T, float>) {
      plane.sum(from, some, first, band, to, columns);
    } else {
      plane.sum(from, widened(some, taps).data(), first, band, to, columns);
    }
  };
  const std::int64_t blocks = depthwise_blocks(plane_work(windows) * static_cast<double>(count));
  const Blocks runs(count, ceil_div(count, blocks));
  const std::int64_t cuts = reads_own_planes(windows, filters) ? 1 : ceil_div(blocks, runs.count());
  const Blocks bands(rows, ceil_div(rows, cuts));
  grid.run_by_any(runs.count() * bands.count(), [&](std::int64_t index) {
    const Blocks::Range some = runs[index / bands.count()], band = bands[index % bands.count()];
    // What follows is done while a few planes are in the first-level cache.
    const std::int64_t together = std::max<std::int64_t>(kNearPixels / (band.count() * columns), 1);
    for (std::int64_t i = some.first; i < some.last; i += together) {
      const std::int64_t end = std::min(i + together, some.last);
      for (std::int64_t plane = i; plane < end; ++plane) run(plane, band);
      grid.finish(i, end - i, band.first * columns, band.count() * columns);
    }
  });
}

/// Pixels of an image a stride apart, whose gradients come from the same taps, in one direction:
/// taps `tap`, tap + stride, ... turned by half a circle see them with stride 1.
struct Phase {
  WindowAxis axis;
  std::int64_t tap, stride;
  bool empty;  ///< no tap sees them

  [[nodiscard]] kernels::conv::EveryTap taps() const noexcept { return {axis.kernel, tap, stride}; }
};

Phase phase_of(const WindowAxis& window, std::int64_t first) {
  const std::int64_t stride = window.stride, pixels = ceil_div(window.size - first, stride);
  const std::int64_t tap = (first + window.padding) % stride;
  const bool empty = tap >= window.kernel;
  const std::int64_t kernel = empty ? 1 : ceil_div(window.kernel - tap, stride);
  // The tap sees the first pixel from here.
  const std::int64_t from = (first + window.padding - tap) / stride;
  return {
      {window.result, pixels, kernel, 1, window.dilation * (kernel - 1) - from, window.dilation},
      tap,
      stride,
      empty};
}

/// The gradient of a plane.
template <class T>
class PlaneGradient {
 public:
  explicit PlaneGradient(const Windows& windows) : windows_(windows) {
    for (std::int64_t y = 0; y < std::min(windows.y.stride, windows.y.size); ++y) {
      for (std::int64_t x = 0; x < std::min(windows.x.stride, windows.x.size); ++x) {
        phases_.emplace_back(phase_of(windows.y, y), phase_of(windows.x, x));
      }
    }
  }

  void run(const T* gradient, const T* weights, T* to) const {
    const std::int64_t width = windows_.x.size;
    const std::int64_t parts = std::min(windows_.x.stride, windows_.x.size);
    if (parts == 1) {
      for (std::size_t y = 0; y < phases_.size(); ++y) {
        run_phase(phases_[y], gradient, weights, to + static_cast<std::int64_t>(y) * width,
                  windows_.y.stride * width);
      }
      return;
    }
    const std::int64_t step = ceil_div(width, windows_.x.stride) + kernels::conv::kDepthwiseBeyond;
    for (std::size_t first = 0; first < phases_.size(); first += static_cast<std::size_t>(parts)) {
      const std::int64_t rows = phases_[first].y.axis.result, row_step = parts * step;
      float* made = t_parts.get<float>(rows * row_step);
      for (std::int64_t x = 0; x < parts; ++x) {
        run_phase(phases_[first + static_cast<std::size_t>(x)], gradient, weights, made + x * step,
                  row_step);
      }
      const std::int64_t top = static_cast<std::int64_t>(first) / parts;
      for (std::int64_t row = 0; row < rows; ++row) {
        kernels::conv::interleave_row<T>(made + row * row_step, step, parts, width,
                                         to + (top + row * windows_.y.stride) * width);
      }
    }
  }

 private:
  struct Phases {
    Phases(const Phase& in_y, const Phase& in_x) : y(in_y), x(in_x), plane(in_y.axis, in_x.axis) {}
    Phase y, x;
    DepthwisePlane plane;
  };

  template <class To>
  void run_phase(const Phases& phases, const T* gradient, const T* weights, To* to,
                 std::int64_t step) const {
    const Phase &y = phases.y, &x = phases.x;
    if (y.empty || x.empty) {
      return kernels::fill_rows(y.axis.result, x.axis.result, To(), to, step);
    }
    Weights some;
    kernels::conv::flipped_taps(weights, windows_.x.kernel, y.taps(), x.taps(), some.data());
    phases.plane.sum(gradient, some.data(), 0, {0, y.axis.result}, to, step);
  }

  const Windows& windows_;
  std::vector<Phases> phases_;
};

template <class T>
void run_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                        const TensorRef& weights, const Windows& windows) {
  const PlaneGradient<T> plane(windows);
  const std::int64_t count = windows.images * windows.channels, taps = windows.taps();
  const std::int64_t blocks = depthwise_blocks(plane_work(windows) * static_cast<double>(count));
  const Blocks runs(count, ceil_div(count, blocks));
  grid.run_by_any(runs.count(), [&](std::int64_t index) {
    const Blocks::Range some = runs[index];
    for (std::int64_t i = some.first; i < some.last; ++i) {
      plane.run(elements<const T>(gradient) + i * windows.result_plane(),
                elements<const T>(weights) + i % windows.channels * taps,
                elements<T>(result) + i * windows.plane());
    }
  });
}

template <class T>
void run_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                         const TensorRef& images, const Windows& windows) {
  const DepthwisePlane plane(windows.y, windows.x);
  const std::int64_t channels = windows.channels, taps = windows.taps();
  const auto each_image = [&](std::int64_t channel, auto&& function) {
    for (std::int64_t image = 0; image < windows.images; ++image) {
      const std::int64_t index = image * channels + channel;
      function(elements<const T>(images) + index * windows.plane(),
               elements<const T>(gradient) + index * windows.result_plane());
    }
  };
  const double work = plane_work(windows) * static_cast<double>(windows.images * channels);
  const Blocks runs(channels, ceil_div(channels, depthwise_blocks(work)));
  grid.run_by_any(runs.count(), [&](std::int64_t index) {
    const Blocks::Range some = runs[index];
    for (std::int64_t c = some.first; c < some.last; ++c) {
      Weights sums{};
      each_image(c,
                 [&](const T* image, const T* grad) { plane.add_taps(image, grad, sums.data()); });
      // Gradients are multiplied with the padding, too.
      if (plane.padded() && !kernels::conv::all_finite<float>(sums.data(), taps)) [[unlikely]] {
        sums = {};
        each_image(c, [&](const T* image, const T* grad) {
          kernels::conv::add_plane_taps(windows.y, windows.x, image, grad, sums.data());
        });
      }
      kernels::round_row<T>(elements<T>(result) + c * taps, sums.data(), taps);
    }
  });
}

}  // namespace

bool reads_own_planes(const Windows& windows, std::int64_t filters) noexcept {
  // So few planes are cut into bands of rows, of which neighbours read the same.
  constexpr std::int64_t kFewPlanes = 64;
  return filters == windows.channels && windows.images * filters >= kFewPlanes &&
         windows.y.size == windows.y.result && windows.x.size == windows.x.result;
}

void depthwise_planes(Grid& grid, const TensorRef& result, const TensorRef& images,
                      const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run_forward<decltype(zero)>(grid, result, images, weights, bias, windows);
  });
}

void depthwise_image_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                              const TensorRef& weights, const Windows& windows) {
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run_image_gradient<decltype(zero)>(grid, result, gradient, weights, windows);
  });
}

void depthwise_weight_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                               const TensorRef& images, const Windows& windows) {
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run_weight_gradient<decltype(zero)>(grid, result, gradient, images, windows);
  });
}

}  // namespace loom::ops
