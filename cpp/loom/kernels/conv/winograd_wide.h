// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The transforms of Winograd's F(4x4, 3x3) of bfloat16 to points of float32 and back, in vectors
// that run along channels: of tiles of 6x6 elements of the images (B' d B), of 3x3 weights (G g
// G'), of the products' sums to 4x4 pixels (A' m A), and the transposed ones for the gradient of
// the weights. Points are stored in whole vectors: there has to be room for a multiple of
// kVectorFloats of them in a row. They are for processors with AVX-512 and BF16 only: without, no
// product of bfloat16 is loom's. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

inline constexpr std::int64_t kVectorFloats = 16;
inline constexpr std::int64_t kWideSide = 6;    ///< elements of the images that a tile sees
inline constexpr std::int64_t kWideResult = 4;  ///< pixels that it makes, in either direction
inline constexpr std::int64_t kWidePoints = kWideSide * kWideSide;

/// B' d B of a tile whose element (y, x) is at pixels + y * row_step + x * channels:
/// points[point * step + channel].
LOOM_SIMD_FROM(avx512_bf16, wide_tile_to_points,
               void(const simd::BFloat16* pixels, std::int64_t row_step, std::int64_t channels,
                    float* points, std::int64_t step) noexcept);

/// G g G' of taps[tap * count + i] of a channel, which may be turned by half a circle: points[point
/// * step + i].
LOOM_SIMD_FROM(avx512_bf16, wide_taps_to_points,
               void(const simd::BFloat16* taps, std::int64_t count, bool turned, float* points,
                    std::int64_t step) noexcept);

/// Where the pixels of a tile are stored.
struct WidePixels {
  simd::BFloat16* to;
  std::int64_t row_step, pixel_step;  ///< in elements
  std::int64_t rows, columns;         ///< at most kWideResult; those beyond are not stored
};

/// A' m A + bias of products[point * step + filter], rounded; `bias` may be null. Returns false if
/// there is an infinity or NaN among A' m A.
LOOM_SIMD_FROM(avx512_bf16, wide_products_to_pixels,
               bool(const float* products, std::int64_t step, std::int64_t filters,
                    const simd::BFloat16* bias, const WidePixels& pixels) noexcept);

/// A d A' of channels [0, count) of 4x4 pixels of a result, pixel (y, x) of which is at pixels + y
/// * row_step + x * pixel_step: points[point * step + channel].
LOOM_SIMD_FROM(avx512_bf16, wide_pixels_to_points,
               void(const simd::BFloat16* pixels, std::int64_t row_step, std::int64_t pixel_step,
                    std::int64_t count, float* points, std::int64_t step) noexcept);

/// G' m G of sums[point * step + i], rounded: taps[tap * count + i].
LOOM_SIMD_FROM(avx512_bf16, wide_sums_to_taps,
               void(const float* sums, std::int64_t step, std::int64_t count,
                    simd::BFloat16* taps) noexcept);

}  // namespace loom::kernels::conv
