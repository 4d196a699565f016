// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A plane of an image and the windows that see it, in memory of the thread
// (kernels/conv/depthwise.h). Thread: any; a DepthwisePlane is not changed by its use.

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"
#include "loom/kernels/conv/depthwise.h"
#include "loom/kernels/conv/mending.h"
#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/convolve_parts.h"

#include <algorithm>
#include <array>

namespace loom::ops {

/// Whether planes of float32 are summed up where they lie (kernels/conv/depthwise_direct.h).
[[nodiscard]] bool are_direct_windows(const WindowAxis& y, const WindowAxis& x) noexcept;

class DepthwisePlane {
 public:
  /// Requires: at most kMostDepthwiseTaps taps.
  DepthwisePlane(const WindowAxis& y, const WindowAxis& x);

  [[nodiscard]] std::int64_t taps() const noexcept { return y_.kernel * x_.kernel; }

  /// Pixels of some rows, bias + the sum of what their taps see of the plane: pixel (y, x) to
  /// to[y * step + x]. From, To: float or simd::BFloat16.
  template <class From, class To>
  void sum(const From* plane, const float* weights, float bias, Blocks::Range rows, To* to,
           std::int64_t step) const;

  /// Adds the product of each pixel's gradient with what its taps see to the sums of those.
  template <class T>
  void add_taps(const T* plane, const T* gradient, float* sums) const;

  /// What an infinity or NaN among weights or gradients needs, which is not to meet the padding.
  template <class From, class To>
  void sum_carefully(const From* plane, const float* weights, float bias, Blocks::Range rows,
                     To* to, std::int64_t step) const;
  template <class T>
  void add_taps_carefully(const T* plane, const T* gradient, float* sums) const;

  [[nodiscard]] bool padded() const noexcept {
    return begin(y_) > 0 || end(y_) < y_.seen() || begin(x_) > 0 || end(x_) < x_.seen();
  }

 private:
  // What is the image's of what windows see.
  static std::int64_t begin(const WindowAxis& axis) noexcept {
    return std::clamp<std::int64_t>(axis.padding, 0, axis.seen());
  }
  static std::int64_t end(const WindowAxis& axis) noexcept {
    return std::clamp(axis.size + axis.padding, begin(axis), axis.seen());
  }
  /// Calls function(y, x, tap) for the taps of a pixel that see the plane at (y, x).
  template <class Function>
  void for_each_tap(std::int64_t row, std::int64_t column, Function&& function) const;

  template <class From>
  const float* lay_out(const From* plane, Blocks::Range rows) const;
  [[nodiscard]] kernels::conv::DepthwiseRows sums_of(Blocks::Range rows, std::int64_t step) const;
  [[nodiscard]] std::int64_t rows_at_a_time() const;

  WindowAxis y_, x_;
  kernels::conv::SeenRows seen_;
  std::int64_t most_rows_;
  std::array<std::int64_t, kernels::conv::kMostDepthwiseTaps> places_;
};

}  // namespace loom::ops
