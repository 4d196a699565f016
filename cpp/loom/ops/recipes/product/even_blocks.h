// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How rows and columns of a product are shared out so that two cores are done at about the same
// time. Thread: values.

#include "loom/base/ceil_div.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <cstdint>

namespace loom::ops::detail {

inline constexpr double kMostBlocks = 32;
// Rows of a block are a multiple of it, as of a vector.
inline constexpr std::int64_t kRowUnit = 16;

/// How many items of the batch, rows and columns a block has.
struct Block {
  std::int64_t items, rows, columns;
};

// `count` cut into at most `pieces` of whole `unit`s.
inline std::int64_t cut(std::int64_t count, std::int64_t pieces, std::int64_t unit) {
  return std::min(count, ceil_div(ceil_div(count, unit), pieces) * unit);
}

// The same with somewhat fewer pieces, of whole tiles if that is as good, where two cores are done
// sooner with `times` as many: the last piece may be much shorter than the others, and there may be
// an odd number of them.
inline std::int64_t even_cut(std::int64_t count, std::int64_t pieces, std::int64_t times) {
  const auto time = [=](std::int64_t length) {
    return ceil_div(ceil_div(count, length) * times, 2) * length;
  };
  const std::int64_t plain = cut(count, pieces, kRowUnit);
  std::int64_t best = plain;
  for (const std::int64_t unit : {kTileRows, kRowUnit}) {
    for (std::int64_t fewer = pieces; 3 * fewer >= 2 * pieces; --fewer) {
      const std::int64_t length = cut(count, fewer, unit);
      if (time(length) < time(best)) best = length;
    }
  }
  // Fewer pieces make up less for a core that comes late.
  return 32 * time(best) < 31 * time(plain) ? best : plain;
}

// How many columns two cores take, one after the other, until `times` rows of blocks of such a
// width are done.
inline std::int64_t two_cores_time(std::int64_t columns, std::int64_t width, std::int64_t times) {
  const std::int64_t whole = columns / width * times, rest = columns % width;
  if (whole % 2 == 0) return whole / 2 * width + ceil_div(times, 2) * rest;
  return std::max((whole + 1) / 2 * width, ceil_div(whole * width + times * rest, 2));
}

// The width of blocks of columns, at most `widest`, with which two cores are done soonest with
// `times` such rows of blocks. Of 196 columns blocks of 64 keep one core at work for 128 and the
// other one for 68, blocks of 48 both for about 98.
// Widths are multiples of `unit`, or `widest`.
inline std::int64_t even_width(std::int64_t columns, std::int64_t widest, std::int64_t times,
                               std::int64_t unit) {
  constexpr std::int64_t kNarrowest = 48;
  const auto time = [=](std::int64_t width) { return two_cores_time(columns, width, times); };
  std::int64_t best = widest;
  for (std::int64_t width = (widest - 1) / unit * unit; width >= kNarrowest && 2 * width >= widest;
       width -= unit) {
    if (time(width) < time(best)) best = width;
  }
  // Narrower blocks read the left operand more often.
  return 16 * time(best) < 15 * time(widest) ? best : widest;
}

// What two cores take for a grid of blocks, in rows times columns of whole vectors. Each begins
// with half of the blocks (Slot::divide()) and goes on with what the other one has not begun. To
// begin a block takes as long as some rows.
inline std::int64_t two_cores_time(Block block, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kRowsToBegin = 8, kVector = 16;
  const std::int64_t across = ceil_div(columns, block.columns);
  const std::int64_t count = ceil_div(rows, block.rows) * across;
  std::int64_t next[2] = {0, count / 2};
  const std::int64_t end[2] = {count / 2, count};
  std::int64_t time[2] = {};
  for (std::int64_t begun = 0; begun < count; ++begun) {
    const int core = time[1] < time[0] ? 1 : 0;
    const int share = next[core] < end[core] ? core : 1 - core;
    const std::int64_t index = next[share]++;
    const std::int64_t row = index / across * block.rows, column = index % across * block.columns;
    time[core] += (std::min(block.rows, rows - row) + kRowsToBegin) *
                  round_up(std::min(block.columns, columns - column), kVector);
  }
  return std::max(time[0], time[1]);
}

// At most `most` blocks of whole panels, and of rows that are at most `most_down` pieces, where two
// cores are done sooner than with `block`. Of 65 columns a panel and one more leave one of them
// with most of the work.
inline Block even_blocks(Block block, std::int64_t rows, std::int64_t columns, std::int64_t most,
                         std::int64_t most_down) {
  const std::int64_t plain = two_cores_time(block, rows, columns);
  // More blocks make up less for what their beginning takes.
  const auto wins = [](std::int64_t time, std::int64_t than) { return 32 * time < 31 * than; };
  if (!wins(two_cores_time({1, rows, columns}, rows, columns) / 2, plain)) return block;
  Block best = block;
  std::int64_t least = plain;
  for (std::int64_t down = 1; down <= std::min(most, most_down); ++down) {
    for (const std::int64_t unit : {kTileRows, kRowUnit}) {
      for (std::int64_t across = 1; across * down <= most; ++across) {
        const Block other{1, cut(rows, down, unit), cut(columns, across, kPanel)};
        const std::int64_t time = two_cores_time(other, rows, columns);
        if (!wins(time, least)) continue;
        best.rows = other.rows;
        best.columns = other.columns;
        least = time;
      }
    }
  }
  return best;
}

}  // namespace loom::ops::detail
