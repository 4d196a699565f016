// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Winograd's F(2x2, 4x4) for 7x7 windows with stride 2 of float32: transforms and products, which
// have to be in registers together and so need those of AVX-512. Taps, rows and columns are even or
// odd ones, which counts from 0 at the first that a tile sees; there are four even taps and three
// odd ones in one direction, and a tile begins kTileStep elements after its neighbour. Thread: any;
// only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv::strided {

inline constexpr std::int64_t kKernel = 7, kTaps = kKernel * kKernel;
inline constexpr std::int64_t kTileStep = 4;
/// Points in one direction, and those that odd taps have: they have no last one.
inline constexpr std::int64_t kSide = 5, kOddSide = 4, kPoints = kSide * kSide;
/// Points in x of a row: those of even columns, then those of odd ones.
inline constexpr std::int64_t kRowPoints = kSide + kOddSide;
/// Elements of a vector.
inline constexpr std::int64_t kLane = 16;

/// Kinds of taps. Of the last point in x only kinds that are even in x have weights, and likewise
/// in y: in this order those follow each other.
struct Kind {
  std::int64_t odd_y, odd_x;
};
inline constexpr Kind kKinds[] = {{1, 0}, {0, 0}, {0, 1}, {1, 1}};
inline constexpr std::int64_t kKindCount = 4;

/// G g G' of kLane filters, for each kind: taps[(y * kKernel + x) * tap_step + filter] to
/// points[kind * kind_step + point of x * step + point of y * kLane + filter].
LOOM_SIMD_FROM(avx512, transform_taps,
               void(const float* taps, std::int64_t tap_step, float* points, std::int64_t kind_step,
                    std::int64_t step) noexcept);

/// d B of a row of tiles: line[kTileStep * tile + i] to points[point * ld + tile]. What is stored
/// are whole vectors. Requires: room for them, kTileStep * (`tiles` + 2 * kLane) elements of the
/// line, and as many of `memory`.
LOOM_SIMD_FROM(avx512, transform_row,
               void(const float* line, std::int64_t tiles, float* points, std::int64_t ld,
                    float* memory) noexcept);

/// B' d: rows[i * row_step + tile] of even or of odd rows to points[point * step + tile], in whole
/// vectors.
LOOM_SIMD_FROM(avx512, transform_even_rows,
               void(const float* rows, std::int64_t row_step, std::int64_t tiles, float* points,
                    std::int64_t step) noexcept);
LOOM_SIMD_FROM(avx512, transform_odd_rows,
               void(const float* rows, std::int64_t row_step, std::int64_t tiles, float* points,
                    std::int64_t step) noexcept);

/// Filters and vectors of tiles that are multiplied at a time.
inline constexpr std::int64_t kFilters = 3, kVectors = 2, kChunk = kVectors * kLane;

/// Where pixels (y, x) of tiles go: to[filter * filter_step + y * row_step + 2 * tile + x] if they
/// are interleaved, else to[filter * filter_step + y * row_step + x * column_step + tile].
struct Pixels {
  float* to;
  std::int64_t filter_step, row_step;
  bool interleaved;
  std::int64_t column_step;
};

/// A' m A + bias of kFilters filters and kChunk tiles, m being sums over kinds and channels of
/// points[((x * kKindCount * channels + kind * channels + channel) * kSide + y) * ld + tile] and
/// weights[((x * kKindCount * channels + kind * channels + channel) * kSide + y) * kFilters +
/// filter]. Returns false if there is an infinity or NaN.
LOOM_SIMD_FROM(avx512, multiply,
               bool(const float* points, std::int64_t ld, const float* weights,
                    std::int64_t channels, const float* bias, const Pixels& to) noexcept);

}  // namespace loom::kernels::conv::strided
