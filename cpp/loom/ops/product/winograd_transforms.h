// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The transforms of Winograd's F(4x4, 3x3), in vectors of AVX-512 that run along channels. Points
// are stored in whole vectors: there has to be room for a multiple of kVectorFloats of them in a
// row. Thread: any. Requires: can_multiply<c10::BFloat16>() (multiply.h), which means that the
// processor has AVX512_BF16.

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace loom::ops {

inline constexpr std::int64_t kVectorFloats = 16;
inline constexpr std::int64_t kWideSide = 6;    ///< elements of the images that a tile sees
inline constexpr std::int64_t kWideResult = 4;  ///< pixels that it makes, in either direction
inline constexpr std::int64_t kWidePoints = kWideSide * kWideSide;

/// B' d B of a tile whose element (y, x) is at pixels + y * row_step + x * channels:
/// points[point * step + channel].
void transform_wide_tile(const c10::BFloat16* pixels, std::int64_t row_step, std::int64_t channels,
                         float* points, std::int64_t step);

/// G g G' of taps[tap * count + i] of a channel, which may be turned by half a circle: points[point
/// * step + i].
void transform_wide_taps(const c10::BFloat16* taps, std::int64_t count, bool turned, float* points,
                         std::int64_t step);

/// Where the pixels of a tile are stored.
struct WidePixels {
  c10::BFloat16* to;
  std::int64_t row_step, pixel_step;  ///< in elements
  std::int64_t rows, columns;         ///< at most kWideResult; those beyond are not stored
};

/// A' m A + bias of products[point * step + filter], rounded; `bias` may be null. Returns false if
/// there is an infinity or NaN among A' m A.
bool transform_wide_products(const float* products, std::int64_t step, std::int64_t filters,
                             const c10::BFloat16* bias, const WidePixels& pixels);

/// A d A' of channels [0, count) of 4x4 pixels of a result, pixel (y, x) of which is at pixels + y
/// * row_step + x * pixel_step: points[point * step + channel].
void transform_wide_pixels(const c10::BFloat16* pixels, std::int64_t row_step,
                           std::int64_t pixel_step, std::int64_t count, float* points,
                           std::int64_t step);

/// G' m G of sums[point * step + i], rounded: taps[tap * count + i].
void transform_wide_sums(const float* sums, std::int64_t step, std::int64_t count,
                         c10::BFloat16* taps);

}  // namespace loom::ops
