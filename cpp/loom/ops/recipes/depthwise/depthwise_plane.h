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

  [[nodiscard]] bool padded() const noexcept { return y_.padded() || x_.padded(); }

 private:
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
