// SPDX-License-Identifier: BSD-3-Clause
// Matrices that are transposed, tile by tile.
#include "loom/device/scratch.h"
#include "loom/kernels/copy/strided_copy.h"
#include "loom/kernels/copy/transpose_tile.h"

#include <algorithm>
#include <utility>

namespace loom::kernels {
namespace {

const Scratch kSquare;

}  // namespace

TurnedTile StridedCopy::tile_at(std::int64_t unit, std::int64_t edge) const noexcept {
  std::int64_t rest = unit / units_per_matrix_;
  const std::int64_t tile = unit % units_per_matrix_;
  const std::int64_t row = tile / units_per_row_ * edge, column = tile % units_per_row_ * edge;
  std::byte* to = to_ + column * columns_.to + row * rows_.to;
  const std::byte* from = from_ + column * columns_.from + row * rows_.from;
  for (int d = dim_count_ - 1; d >= 0; --d) {
    const std::int64_t i = rest % dims_[d].size;
    rest /= dims_[d].size;
    to += i * dims_[d].to;
    from += i * dims_[d].from;
  }
  return {to,
          columns_.to,
          from,
          rows_.from,
          static_cast<int>(std::min<std::int64_t>(edge, rows_.size - row)),
          static_cast<int>(std::min<std::int64_t>(edge, columns_.size - column))};
}

void StridedCopy::run_tiles(std::int64_t begin, std::int64_t end) const noexcept {
  const int edge = tile_edge(run_bytes_);
  TurnedTile tile = tile_at(begin, edge);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    TurnedTile next = tile;
    if (unit + 1 < end) {
      next = tile_at(unit + 1, edge);
      prefetch_tile(next, run_bytes_, streaming_);
    }
    turn_tile(tile, run_bytes_, streaming_);
    tile = next;
  }
}

// Tiles beside each other in the result share lines of it. A square of them is turned in L2, then
// its rows are streamed, of which only the first and the last line are shared.
void StridedCopy::run_squares(std::int64_t begin, std::int64_t end) const {
  constexpr std::ptrdiff_t kLine = 64;
  const int edge = tile_edge(run_bytes_), square_edge = kSquareTiles * edge;
  const auto item = static_cast<std::ptrdiff_t>(run_bytes_);
  // A line more: rows a power of two apart would meet in few sets of the cache.
  const std::ptrdiff_t pitch = square_edge * item + kLine;
  auto* const turned = kSquare.get<std::byte>(pitch * square_edge);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const TurnedTile square = tile_at(unit, square_edge);
    for (int row = 0; row < square.rows; row += edge) {
      for (int column = 0; column < square.columns; column += edge) {
        turn_tile({turned + column * pitch + row * item, pitch,
                   square.from + row * square.from_stride + column * item, square.from_stride,
                   std::min(edge, square.rows - row), std::min(edge, square.columns - column)},
                  run_bytes_, /*streaming=*/false);
      }
    }
    for (int column = 0; column < square.columns; ++column) {
      copy_run(square.to + column * square.to_stride, turned + column * pitch,
               static_cast<std::size_t>(square.rows) * run_bytes_);
    }
  }
}

}  // namespace loom::kernels
