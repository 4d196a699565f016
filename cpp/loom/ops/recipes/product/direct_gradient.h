// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What faster ways of the gradient of a convolution's weights get wrong, as direct.h has it of the
// convolution itself: an infinity or NaN reaches taps that do not see it. Such taps are not finite,
// and are computed again, each by itself. Thread: the worker.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace loom::ops {

/// The gradient of the weights of a convolution of float or c10::BFloat16. Images and the gradient
/// of the result lie as `windows` says.
template <class T>
struct DirectWeightGradient {
  T* result;
  const T *gradient, *images;
  std::int64_t filters;
  bool weights_last;  ///< the channels of the result are last in memory
  Windows windows;

  /// Computes the elements that are not finite again, sums in double. Returns false and does
  /// nothing if they are half of all or more, which would take long.
  [[nodiscard]] bool mend(Grid& grid) const;
};

}  // namespace loom::ops
