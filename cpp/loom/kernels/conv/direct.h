// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What faster ways of a convolution get wrong: they multiply weights with the zeros that they put
// beside an image, and Winograd's algorithm adds tiles' elements to each other, so that an infinity
// or NaN reaches pixels that do not see it. Such pixels are not finite, and are computed again, tap
// by tap. Thread: any.

#include "loom/base/blocks.h"
#include "loom/kernels/conv/windows.h"
#include "loom/simd/half.h"

#include <cstdint>

namespace loom::kernels::conv {

/// A convolution of float or simd::BFloat16, whose result and images lie as `windows` says, and
/// what is computed again of it.
template <class T>
struct Convolution {
  T* result;
  const T *images, *weights, *bias;  ///< the bias may be null
  std::int64_t filters;
  bool turned;        ///< weights are (channels, filters, ...), turned by half a circle
  bool weights_last;  ///< their second dimension is last in memory
  Windows windows;

  [[nodiscard]] std::int64_t channels() const noexcept { return windows.channels; }
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

/// The pixels of some rows of a plane's result, bias + the sum of what their taps see of it: pixel
/// (y, x) to to[y * step + x]. From, To: float or simd::BFloat16.
template <class From, class To>
void sum_plane(const WindowAxis& ys, const WindowAxis& xs, const From* plane, const float* weights,
               float bias, Blocks::Range rows, To* to, std::int64_t step);

/// Adds the product of each pixel's gradient with what its taps see to the sums of those.
template <class T>
void add_plane_taps(const WindowAxis& ys, const WindowAxis& xs, const T* plane, const T* gradient,
                    float* sums);

}  // namespace loom::kernels::conv
