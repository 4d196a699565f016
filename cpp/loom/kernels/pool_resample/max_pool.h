// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Max pooling of planes of float or simd::BFloat16. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::pool_resample {

/// The window of a pooling, and the planes that it goes over and makes.
struct PoolWindow {
  struct Side {
    std::int64_t from, to;  ///< elements of the input and of the result
    std::int64_t kernel, stride, padding, dilation;
    std::int64_t pitch;  ///< a stride apart, elements that windows may see: pitch_of()

    /// Of windows that may reach beyond the input, and inputs that reach beyond the windows.
    [[nodiscard]] constexpr std::int64_t pitch_of() const noexcept {
      const std::int64_t windows = (to - 1) * stride + (kernel - 1) * dilation + 1;
      const std::int64_t line = padding + from;
      return ((windows > line ? windows : line) + stride - 1) / stride;
    }
  };
  Side rows, columns;

  /// Floats of scratch.
  [[nodiscard]] constexpr std::int64_t scratch() const noexcept {
    return 2 * columns.to + columns.stride * columns.pitch;
  }
};

LOOM_SIMD_DECLARE(template <class T> void max_pool(const PoolWindow& window, T* to,
                                                   std::int64_t* places, const T* from,
                                                   float* scratch) noexcept;)

/// The largest elements of a plane and their places in it; a NaN is larger than all.
template <class T>
inline constexpr simd::Versions max_pool{LOOM_SIMD_LIST(max_pool<T>)};

}  // namespace loom::kernels::pool_resample
