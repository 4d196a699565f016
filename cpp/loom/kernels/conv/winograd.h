// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The transforms of Winograd's F(2x2, 3x3) for float32 (Lavin and Gray, "Fast algorithms for
// convolutional neural networks", 2015): of tiles of 4x4 elements of the images (B' d B), of 3x3
// weights (G g G'), of the products' sums to 2x2 pixels (A' m A), and the transposed ones for the
// gradient of the weights. A point, pixel or tap of all tiles, channels or filters lies together;
// `step` elements later is the next one. Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

inline constexpr std::int64_t kTilePoints = 16;  // 4x4 elements of the images
inline constexpr std::int64_t kTilePixels = 4;   // 2x2 of the result
inline constexpr std::int64_t kTaps = 9;

/// What the transforms take at once: they need as many tiles, channels or filters at least.
inline constexpr std::int64_t kLanes = 16;

/// tiles[point * ld + tile] of one channel to points[point * step + tile]. Requires: `width` is a
/// multiple of kLanes.
LOOM_SIMD_VERSIONS(tiles_to_points, void(const float* tiles, std::int64_t ld, std::int64_t width,
                                         float* points, std::int64_t step) noexcept);

/// The same of one tile, whose element i has its channels at pixels[i]: points[point * step +
/// channel].
LOOM_SIMD_VERSIONS(tile_to_points, void(const float* const* pixels, std::int64_t channels,
                                        float* points, std::int64_t step) noexcept);

/// taps[tap * count + i] to points[point * step + i].
LOOM_SIMD_VERSIONS(taps_to_points, void(const float* taps, std::int64_t count, float* points,
                                        std::int64_t step) noexcept);

/// products[point * step + tile] of one filter to rows[y * 2 * width + 2 * tile + x], plus `bias`.
/// Requires: `width` is a multiple of kLanes.
LOOM_SIMD_VERSIONS(products_to_rows, void(const float* products, std::int64_t step,
                                          std::int64_t width, float bias, float* rows) noexcept);

/// products[point * step + filter] of one tile to its pixels, plus `bias`. Returns false if there
/// is an infinity or NaN.
LOOM_SIMD_VERSIONS(products_to_pixels,
                   bool(const float* products, std::int64_t step, std::int64_t filters,
                        const float* bias, float* const* pixels) noexcept);

/// The gradient of pixels, rows[y * 2 * width + 2 * tile + x], to points[point * step + tile].
/// Requires: `width` is a multiple of kLanes.
LOOM_SIMD_VERSIONS(rows_to_points, void(const float* rows, std::int64_t width, float* points,
                                        std::int64_t step) noexcept);

/// The same of `filters` filters of one tile, from `first` on: points[point * step + filter].
LOOM_SIMD_VERSIONS(pixels_to_points,
                   void(const float* const* pixels, std::int64_t first, std::int64_t filters,
                        float* points, std::int64_t step) noexcept);

/// sums[point * step + i] to taps[tap * count + i].
LOOM_SIMD_VERSIONS(sums_to_taps, void(const float* sums, std::int64_t step, std::int64_t count,
                                      float* taps) noexcept);

}  // namespace loom::kernels::conv
