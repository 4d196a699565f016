// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What faster ways of a convolution get wrong: they multiply weights with the zeros that they put
// beside an image, and Winograd's algorithm adds tiles' elements to each other, so that an infinity
// or NaN reaches pixels that do not see it. Such pixels are not finite, and are computed again, tap
// by tap. Thread: any.

#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/convolve_parts.h"

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace loom::ops {

/// Whether there is neither an infinity nor a NaN.
[[nodiscard]] bool all_finite(const float* data, std::int64_t count);
[[nodiscard]] bool all_finite(const c10::BFloat16* data, std::int64_t count);

/// A convolution of float or c10::BFloat16, whose result and images lie as `windows` says.
template <class T>
struct DirectConvolution {
  T* result;
  const T *images, *weights, *bias;  ///< the bias may be null
  std::int64_t filters;
  bool turned;        ///< weights are (channels, filters, ...), turned by half a circle
  bool weights_last;  ///< their second dimension is last in memory
  Windows windows;

  /// Computes those elements of some pixels and filters again that are not finite. Sums are
  /// float32.
  void mend(Blocks::Range pixels, Blocks::Range filters) const;
  /// False if a way without transforms has made everything right: windows see the images only, or
  /// the weights are finite. Results are looked at, not weights, where there are fewer of them.
  [[nodiscard]] bool needs_mending() const;
  /// The same of tiles of `side` x `side` pixels, which are counted as the pixels of `tiles`.
  void mend_tiles(const Windows& tiles, std::int64_t side, Blocks::Range range,
                  Blocks::Range filters) const;
};

}  // namespace loom::ops
