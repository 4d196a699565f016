// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/depthwise/depthwise_small.h"

#include "loom/device/scratch.h"
#include "loom/kernels/conv/depthwise_filters.h"
#include "loom/kernels/conv/depthwise_turned.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/copy/transpose_tile.h"
#include "loom/ops/recipes/depthwise/depthwise_parts.h"
#include "loom/ops/recipes/product/convolve_parts.h"

namespace loom::ops {
namespace {

using kernels::turn_matrix;
using kernels::conv::kTurnedChannels;

// Elements: with more turning takes as long as what vectors of pixels leave unused.
constexpr std::int64_t kMostPlane = 400;

const Scratch t_from, t_to, t_weights, t_bias;

/// The convolution of planes with the windows, whose taps are in the opposite order if `flipped`.
template <class T>
class TurnedPlanes {
 public:
  TurnedPlanes(const TensorRef& result, const TensorRef& images, const TensorRef& weights,
               const TensorRef& bias, const Windows& windows, bool flipped)
      : result_(elements<T>(result)),
        images_(elements<const T>(images)),
        weights_(elements<const T>(weights)),
        bias_(elements<const T>(bias)),
        windows_(windows),
        flipped_(flipped) {}

  /// Channels [first, first + count) of an image, at most kTurnedChannels.
  void run(std::int64_t image, std::int64_t first, std::int64_t count) const {
    const std::int64_t plane = windows_.plane(), pixels = windows_.result_plane();
    const std::int64_t taps = windows_.taps(), at = image * windows_.channels + first;
    T* from = t_from.get<T>(plane * kTurnedChannels);
    T* to = t_to.get<T>(pixels * kTurnedChannels);
    float* weights = t_weights.get<float>(taps * kTurnedChannels);
    float* bias = t_bias.get<float>(kTurnedChannels);
    turn_matrix(images_ + at * plane, plane, count, plane, from, kTurnedChannels);
    kernels::conv::filters_by_taps(weights_ + first * taps, count, taps, flipped_, weights,
                                   kTurnedChannels);
    if (bias_ != nullptr) {
      kernels::widen_row<T>(bias, bias_ + first, count);
    } else {
      std::fill_n(bias, count, 0.F);
    }
    kernels::conv::depthwise_turned<T>(from, weights, bias, windows_.y, windows_.x, to);
    turn_matrix(to, kTurnedChannels, pixels, count, result_ + at * pixels, pixels);
  }

 private:
  T* const result_;
  const T *const images_, *const weights_, *const bias_;
  const Windows& windows_;
  const bool flipped_;
};

template <class T>
void run(Grid& grid, const TurnedPlanes<T>& planes, const Windows& windows) {
  const std::int64_t channels = windows.channels;
  const Blocks sets(channels, kTurnedChannels);
  const std::int64_t count = windows.images * sets.count();
  const auto pixels = static_cast<double>(windows.result_plane());
  const double set = static_cast<double>(kTurnedChannels) *
                     (pixels * static_cast<double>(windows.taps()) +
                      kDepthwiseMove * (pixels + static_cast<double>(windows.plane())));
  const std::int64_t blocks = depthwise_blocks(set * static_cast<double>(count));
  const Blocks runs(count, ceil_div(count, blocks));
  grid.run_by_any(runs.count(), [&](std::int64_t index) {
    const Blocks::Range some = runs[index];
    for (std::int64_t i = some.first; i < some.last; ++i) {
      const std::int64_t image = i / sets.count();
      const Blocks::Range set_of = sets[i % sets.count()];
      planes.run(image, set_of.first, set_of.count());
      grid.finish(image * channels + set_of.first, set_of.count(), 0, windows.result_plane());
    }
  });
}

}  // namespace

bool suits_turned_planes(const Windows& windows) noexcept {
  return windows.plane() <= kMostPlane && windows.result_plane() <= kMostPlane;
}

void depthwise_turned_planes(Grid& grid, const TensorRef& result, const TensorRef& images,
                             const TensorRef& weights, const TensorRef& bias,
                             const Windows& windows) {
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run(grid, TurnedPlanes<decltype(zero)>(result, images, weights, bias, windows, false), windows);
  });
}

void depthwise_turned_gradient(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                               const TensorRef& weights, const Windows& windows) {
  Windows turned = windows;
  for (WindowAxis* axis : {&turned.y, &turned.x}) {
    axis->padding = axis->dilation * (axis->kernel - 1) - axis->padding;
    std::swap(axis->size, axis->result);
  }
  with_depthwise_type(result.dtype(), [&](auto zero) {
    run(grid, TurnedPlanes<decltype(zero)>(result, gradient, weights, TensorRef(), turned, true),
        turned);
  });
}

}  // namespace loom::ops
