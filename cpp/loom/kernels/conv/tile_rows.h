// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows of a channel of images, and the tiles of Winograd's algorithm that are taken out of them:
// 4x4 elements, every two. Numbers are float32. Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>
#include <span>

namespace loom::kernels::conv {

/// Elements side by side: their place in a channel of the images (counted from that channel of the
/// first image) and in rows that are made of tiles.
struct TileCopy {
  std::int64_t image, row, count;
};

LOOM_SIMD_VERSIONS(copy_out, void(const float* image, std::span<const TileCopy> copies,
                                  float* rows) noexcept);
LOOM_SIMD_VERSIONS(copy_in, void(const float* rows, std::span<const TileCopy> copies,
                                 float* image) noexcept);

/// Neighbours in a row of tiles: where the first is in the rows, and its number.
struct TileRun {
  std::int64_t row, column, count;
};

/// rows[run.row + y * rows_ld + 2 * i + x] to to[(4 * y + x) * ld + run.column + i], for tiles i of
/// the runs. `longest` is the largest count of a run. Up to 16 elements behind those of a run are
/// read and written, of the last one, too.
LOOM_SIMD_VERSIONS(split_tiles,
                   void(const float* rows, std::int64_t rows_ld, std::span<const TileRun> runs,
                        std::int64_t longest, float* to, std::int64_t ld) noexcept);

}  // namespace loom::kernels::conv
