// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Depthwise convolutions of images in channels_last, whose vectors run along channels: nothing is
// laid out, and taps that see nothing of the image are left out. Elements are float or
// simd::BFloat16, sums float. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

/// One tap of a run of pixels.
struct PointTap {
  std::int64_t image;   ///< where the first pixel sees it
  std::int64_t weight;  ///< where the weights of its channels begin
};

/// Pixels that see the same taps, and what they see lies evenly.
struct PointRun {
  const PointTap* taps;
  std::int64_t count;
  std::int64_t pixels, step, image_step;  ///< from a pixel to the next: of the result, of the image
  std::int64_t channels;
};

#define LOOM_DEPTHWISE_POINTS(T)                                                        \
  void depthwise_points(const T* image, const float* weights, const float* bias,        \
                        const PointRun& run, T* to) noexcept;                           \
  void add_depthwise_point_taps(const T* image, const T* gradient, const PointRun& run, \
                                float* sums) noexcept;
LOOM_SIMD_DECLARE(LOOM_DEPTHWISE_POINTS(float) LOOM_DEPTHWISE_POINTS(simd::BFloat16))
#undef LOOM_DEPTHWISE_POINTS

/// to[p * step + c] = bias[c] + the sum over taps of weights[weight + c] *
/// image[image + p * image_step + c]. The bias may be null.
template <class T>
inline constexpr simd::Versions<void(const T* image, const float* weights, const float* bias,
                                     const PointRun& run, T* to) noexcept>
    depthwise_points{LOOM_SIMD_LIST(depthwise_points)};

/// sums[weight + c] += the sum over pixels of gradient[p * step + c] *
/// image[image + p * image_step + c], for each tap.
template <class T>
inline constexpr simd::Versions<void(const T* image, const T* gradient, const PointRun& run,
                                     float* sums) noexcept>
    add_depthwise_point_taps{LOOM_SIMD_LIST(add_depthwise_point_taps)};

}  // namespace loom::kernels::conv
