// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What faster ways of the gradient of a convolution's weights get wrong, as direct.h has it of the
// convolution itself: an infinity or NaN reaches taps that do not see it. Such taps are not finite,
// and are computed again, each by itself. Thread: any.

#include "loom/kernels/conv/windows.h"
#include "loom/simd/half.h"

#include <cstdint>

namespace loom::kernels::conv {

/// The gradient of the weights of a convolution of float or simd::BFloat16. Images and the gradient
/// of the result lie as `windows` says.
template <class T>
struct DirectWeightGradient {
  T* result;
  const T *gradient, *images;
  std::int64_t filters;
  bool weights_last;  ///< the channels of the result are last in memory
  Windows windows;

  /// How many elements are not finite. To compute half of all again, or more, would take long.
  [[nodiscard]] std::int64_t spoilt() const;
  /// Computes those of a filter that are not finite again, sums in double.
  void mend(std::int64_t filter) const;
};

}  // namespace loom::kernels::conv
