// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How convolutions as products are cut, in every direction.
// Thread: the worker.

#include "loom/base/blocks.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <cstdint>

namespace loom::ops {

/// Multiply-adds of a block (80 us), and of the smallest that is worth handing to another core.
inline constexpr double kBlockWork = 4e6;
inline constexpr double kLeastBlockWork = 1e6;
/// Panels that a block sums up at a time.
inline constexpr std::int64_t kMostPanels = 4;

inline double work(std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns);
}

/// The inner dimension in parts of about the same length, panels of which stay in L2.
inline std::int64_t inner_chunk(std::int64_t inner) {
  const std::int64_t chunks = ceil_div(inner, kMaxInner<float>);
  return std::min(inner, round_up(ceil_div(inner, chunks), 32));
}

/// How many of `count` rows of a result a block has, if all are so much work.
inline std::int64_t filters_of_block(std::int64_t count, double work) {
  if (work < 2 * kLeastBlockWork) return count;
  const auto wanted = static_cast<std::int64_t>(std::max(work / kBlockWork, 2.0));
  return std::max<std::int64_t>(round_up(ceil_div(count, wanted), 16), 16);
}

/// Rows of one image's result, as many as are about `most_work` if each is so much work. A few
/// images are cut even if they are small.
inline Blocks bands_of(const Windows& windows, double row_work, double most_work) {
  constexpr std::int64_t kFewImages = 4;
  const std::int64_t rows = windows.y.result;
  const std::int64_t most = ceil_div(rows, ceil_div(kFewImages, windows.images));
  return Blocks(rows,
                std::clamp<std::int64_t>(static_cast<std::int64_t>(most_work / row_work), 1, most));
}

/// All columns, in panels of kPanel pixels with a row for each of windows.rows().
void make_panels(Grid& grid, const Windows& windows, const float* images, float* to);

}  // namespace loom::ops
