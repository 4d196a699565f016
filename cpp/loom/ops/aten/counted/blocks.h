// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Blocks of elements of which each has some rows of a result: one command counts the rows of each,
// the host waits for their sum, another command fills the result. Thread: a worker, if not said
// otherwise.

#include "loom/backend/stream.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace loom::ops {

inline constexpr std::int64_t kCountedBlock = 1 << 15;

[[nodiscard]] inline std::int64_t counted_blocks(std::int64_t count) noexcept {
  return ceil_div(count, kCountedBlock);
}

/// Calls body(block, begin, end) for the blocks of `count` elements, on all cores.
template <class Body>
void in_blocks(Grid& grid, std::int64_t count, const Body& body) {
  grid.run_by_any(counted_blocks(count), [&](std::int64_t block) {
    const std::int64_t begin = block * kCountedBlock;
    body(block, begin, std::min(count, begin + kCountedBlock));
  });
}

/// before[b]: how many rows the blocks before b have, rows_of(begin, end) saying how many one has.
template <class RowsOf>
void count_rows(Grid& grid, const TensorRef& before, std::int64_t count, const RowsOf& rows_of) {
  auto* const rows = elements<std::int64_t>(before);
  in_blocks(grid, count, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    rows[block + 1] = rows_of(begin, end);
  });
  rows[0] = 0;
  for (std::int64_t b = 0; b + 1 < before.numel(); ++b) rows[b + 1] += rows[b];
}

/// Calls fill(begin, end, row, last row) for each block.
template <class Fill>
void fill_rows(Grid& grid, const TensorRef& before, std::int64_t count, const Fill& fill) {
  const auto* const rows = elements<const std::int64_t>(before);
  in_blocks(grid, count, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    fill(begin, end, rows[block], rows[block + 1]);
  });
}

/// Thread: any. Throws: while the current stream is captured.
inline void check_may_wait(const std::string& name, c10::Device device) {
  current_queue(device.index())
      .check_not_captured(name,
                          "the host has to know the size of its result, which depends on data");
}

}  // namespace loom::ops
