// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The inner part of a transposing copy: a tile small enough for the first-level cache is turned in
// a buffer, so that both sides are read and written by whole cache lines, however their rows are
// apart. Thread: any; tiles of two calls at the same time must not overlap.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace loom::kernels {

/// Whether elements of so many bytes can be turned: 1, 2, 4, ... 64.
[[nodiscard]] constexpr bool can_turn(std::size_t item_bytes) noexcept {
  return item_bytes != 0 && item_bytes <= 64 && (item_bytes & (item_bytes - 1)) == 0;
}

/// Rows and columns of a full tile: two cache lines a row, or one where items are bytes.
[[nodiscard]] constexpr int tile_edge(std::size_t item_bytes) noexcept {
  return item_bytes == 1 ? 64 : item_bytes <= 8 ? static_cast<int>(128 / item_bytes) : 16;
}

struct TurnedTile {
  std::byte* to;  ///< `columns` rows of `rows` items, `to_stride` bytes apart
  std::ptrdiff_t to_stride;
  const std::byte* from;  ///< `rows` rows of `columns` items, `from_stride` bytes apart
  std::ptrdiff_t from_stride;
  int rows, columns;  ///< at most tile_edge() each
};

/// Copies a tile. `streaming`: past the caches; requires `to` and `to_stride` to be multiples
/// of 64. Whoever streams calls end_streaming() before others are told that the copy is done.
void turn_tile(const TurnedTile& tile, std::size_t item_bytes, bool streaming) noexcept;

/// to[j * to_step + i] = from[i * from_step + j] of a matrix of any size. T: what can_turn().
template <class T>
[[gnu::always_inline]] inline void turn_matrix(const T* from, std::int64_t from_step,
                                               std::int64_t rows, std::int64_t columns, T* to,
                                               std::int64_t to_step) noexcept {
  constexpr std::int64_t kEdge = tile_edge(sizeof(T));
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t row = 0; row < rows; row += kEdge) {
    for (std::int64_t column = 0; column < columns; column += kEdge) {
      turn_tile({.to = reinterpret_cast<std::byte*>(to + column * to_step + row),
                 .to_stride = to_step * kBytes,
                 .from = reinterpret_cast<const std::byte*>(from + row * from_step + column),
                 .from_stride = from_step * kBytes,
                 .rows = static_cast<int>(std::min(kEdge, rows - row)),
                 .columns = static_cast<int>(std::min(kEdge, columns - column))},
                sizeof(T), /*streaming=*/false);
    }
  }
}

/// Asks for the memory of a tile that is turned soon.
void prefetch_tile(const TurnedTile& tile, std::size_t item_bytes, bool streaming) noexcept;

/// Copies whole cache lines past the caches. Requires: `to` is a multiple of 64.
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void end_streaming() noexcept;

}  // namespace loom::kernels
