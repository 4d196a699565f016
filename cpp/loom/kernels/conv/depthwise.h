// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Depthwise convolutions: every plane of an image has a filter of its own, of one channel. What
// windows see of some rows is first laid out between zeros, by columns a stride apart, so that
// neighbours see neighbours (lay_out_rows); then many pixels are summed up at a time. Elements are
// float or simd::BFloat16, sums float. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

/// The largest window that has vectors of weights.
inline constexpr std::int64_t kMostDepthwiseTaps = 128;
/// So many elements beyond the last row that was laid out may be read.
inline constexpr std::int64_t kDepthwiseBeyond = 16;

/// Rows of a plane, and how they are laid out: column c of what windows see is element
/// c / stride of part c % stride of its row.
struct SeenRows {
  std::int64_t rows;             ///< that windows see, of which
  std::int64_t first, last;      ///< [first, last) are the image's
  std::int64_t begin, end;       ///< the same of columns
  std::int64_t columns, stride;  ///< that windows see; from a window to the next
  std::int64_t image_step;       ///< from a row of the image to the next
  std::int64_t row_step, part_step;

  /// The place of a column in its row.
  [[nodiscard]] std::int64_t place(std::int64_t column) const noexcept {
    return column % stride * part_step + column / stride;
  }
};

/// A filter, and the pixels that it is to compute.
struct DepthwiseRows {
  std::int64_t rows, columns, step;  ///< of the result; from a row to the next
  std::int64_t stride, dilation;     ///< in y
  std::int64_t kernel_y, kernel_x;   ///< at most kMostDepthwiseTaps taps
  std::int64_t row_step;             ///< of what was laid out
  const std::int64_t* places;        ///< where each of kernel_x taps sees its first column
};

#define LOOM_DEPTHWISE(T)                                                                 \
  void lay_out_rows(const T* image, const SeenRows& how, float* to) noexcept;             \
  void depthwise_rows(const float* seen, const float* weights, float bias,                \
                      const DepthwiseRows& how, T* to) noexcept;                          \
  void add_depthwise_taps(const float* seen, const T* gradient, const DepthwiseRows& how, \
                          float* sums) noexcept;                                          \
  void interleave_row(const float* parts, std::int64_t part_step, std::int64_t count,     \
                      std::int64_t columns, T* to) noexcept;
LOOM_SIMD_DECLARE(LOOM_DEPTHWISE(float) LOOM_DEPTHWISE(simd::BFloat16))
#undef LOOM_DEPTHWISE

/// `image` is where the first element is that [first, last) x [begin, end) has.
template <class T>
inline constexpr simd::Versions<void(const T* image, const SeenRows& how, float* to) noexcept>
    lay_out_rows{LOOM_SIMD_LIST(lay_out_rows)};

/// to[y * step + x] = bias + the sum of weights[i * kernel_x + j] *
/// seen[(y * stride + i * dilation) * row_step + places[j] + x].
template <class T>
inline constexpr simd::Versions<void(const float* seen, const float* weights, float bias,
                                     const DepthwiseRows& how, T* to) noexcept>
    depthwise_rows{LOOM_SIMD_LIST(depthwise_rows)};

/// sums[i * kernel_x + j] += the sum of gradient[y * step + x] *
/// seen[(y * stride + i * dilation) * row_step + places[j] + x].
template <class T>
inline constexpr simd::Versions<void(const float* seen, const T* gradient, const DepthwiseRows& how,
                                     float* sums) noexcept>
    add_depthwise_taps{LOOM_SIMD_LIST(add_depthwise_taps)};

/// to[x] = parts[x % count * part_step + x / count]. Requires: kDepthwiseBeyond elements beyond
/// each part.
template <class T>
inline constexpr simd::Versions<void(const float* parts, std::int64_t part_step, std::int64_t count,
                                     std::int64_t columns, T* to) noexcept>
    interleave_row{LOOM_SIMD_LIST(interleave_row)};

}  // namespace loom::kernels::conv
