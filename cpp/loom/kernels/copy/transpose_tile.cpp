// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/transpose_tile.h"

#include "loom/base/ceil_div.h"

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace loom::kernels {
namespace {

constexpr std::size_t kVectorBytes = 16, kLine = 64;

template <std::size_t kSize>
using Item = std::conditional_t<kSize == 1, std::uint8_t,
                                std::conditional_t<kSize == 2, std::uint16_t,
                                                   std::conditional_t<kSize == 4, std::uint32_t,  //
                                                                      std::uint64_t>>>;
template <std::size_t kSize>
using Vector [[gnu::vector_size(kVectorBytes)]] = Item<kSize>;

/// a0 b0 a1 b1 ... of the lower or upper halves.
template <std::size_t kSize, bool kUpper, int... i>
[[gnu::always_inline]] inline Vector<kSize> interleave(Vector<kSize> a, Vector<kSize> b,
                                                       std::integer_sequence<int, i...>) {
  constexpr int kItems = sizeof...(i);
  return __builtin_shufflevector(a, b, (kUpper * kItems / 2 + i / 2 + i % 2 * kItems)...);
}

/// A square of one vector a row; rows that are not there are the last one again. Interleaving the
/// upper with the lower half of the rows moves the highest bit of an item's row to the lowest of
/// its column; done for each bit they are swapped.
template <std::size_t kSize>
[[gnu::always_inline]] inline void turn_square(std::byte* to, std::ptrdiff_t to_stride,
                                               const std::byte* from, std::ptrdiff_t from_stride,
                                               int row_count) {
  constexpr int kItems = kVectorBytes / kSize;
  using Lanes = std::make_integer_sequence<int, kItems>;
  Vector<kSize> rows[kItems], turned[kItems];
  for (int i = 0; i < kItems; ++i) {
    const int row = i < row_count ? i : row_count - 1;
    std::memcpy(&rows[i], from + row * from_stride, kVectorBytes);
  }
  for (int step = 1; step < kItems; step *= 2) {
    for (int i = 0; i < kItems / 2; ++i) {
      turned[2 * i] = interleave<kSize, false>(rows[i], rows[i + kItems / 2], Lanes{});
      turned[2 * i + 1] = interleave<kSize, true>(rows[i], rows[i + kItems / 2], Lanes{});
    }
    for (int i = 0; i < kItems; ++i) rows[i] = turned[i];
  }
  for (int i = 0; i < kItems; ++i) std::memcpy(to + i * to_stride, &rows[i], kVectorBytes);
}

template <std::size_t kSize>
[[gnu::always_inline]] inline void turn_items(std::byte* to, std::ptrdiff_t to_stride,
                                              const std::byte* from, std::ptrdiff_t from_stride,
                                              int rows, int columns) {
  for (int c = 0; c < columns; ++c) {
    for (int r = 0; r < rows; ++r) {
      std::memcpy(to + c * to_stride + r * static_cast<std::ptrdiff_t>(kSize),
                  from + r * from_stride + c * static_cast<std::ptrdiff_t>(kSize), kSize);
    }
  }
}

/// Rows that follow each other, copied in whole vectors: what is written beyond the end of one is
/// overwritten by the next. Requires: the buffer's rows have whole vectors.
[[gnu::always_inline]] inline void put_narrow(const TurnedTile& tile, const std::byte* buffer,
                                              std::ptrdiff_t pitch, std::size_t bytes) {
  std::byte* to = tile.to;
  const std::byte* const end = to + static_cast<std::size_t>(tile.columns) * bytes;
  const std::size_t whole = round_up(bytes, kVectorBytes);
  for (int c = 0; c < tile.columns; ++c, to += bytes, buffer += pitch) {
    if (end - to < static_cast<std::ptrdiff_t>(whole)) [[unlikely]] {
      std::memcpy(to, buffer, bytes);
      continue;
    }
    for (std::size_t i = 0; i < whole; i += kVectorBytes) {
      std::memcpy(to + i, buffer + i, kVectorBytes);
    }
  }
}

template <std::size_t kSize>
void turn(const TurnedTile& tile, bool streaming) noexcept {
  constexpr int kEdge = tile_edge(kSize);
  constexpr int kSquare = kSize < kVectorBytes ? static_cast<int>(kVectorBytes / kSize) : 1;
  constexpr std::ptrdiff_t kPitch = kEdge * kSize, kItem = kSize;
  alignas(kLine) std::byte buffer[kEdge * kPitch];
  for (int r = 0; r < tile.rows; r += kSquare) {
    for (int c = 0; c < tile.columns; c += kSquare) {
      std::byte* to = buffer + c * kPitch + r * kItem;
      const std::byte* from = tile.from + r * tile.from_stride + c * kItem;
      if constexpr (kSquare > 1) {
        if (r + kSquare <= tile.rows && c + kSquare <= tile.columns) [[likely]] {
          turn_square<kSize>(to, kPitch, from, tile.from_stride, kSquare);
          continue;
        }
        // Vectors may reach beyond a row's end where the next row is.
        const std::ptrdiff_t last = (r + kSquare - 1) * tile.from_stride + c * kItem;
        const bool inside =
            tile.from_stride == tile.columns * kItem &&
            last + static_cast<std::ptrdiff_t>(kVectorBytes) <= tile.rows * tile.from_stride;
        if (inside || c + kSquare <= tile.columns) {
          turn_square<kSize>(to, kPitch, from, tile.from_stride,
                             tile.rows - r < kSquare ? tile.rows - r : kSquare);
          continue;
        }
      }
      const int rows = r + kSquare <= tile.rows ? kSquare : tile.rows - r;
      const int columns = c + kSquare <= tile.columns ? kSquare : tile.columns - c;
      turn_items<kSize>(to, kPitch, from, tile.from_stride, rows, columns);
    }
  }
  const auto bytes = static_cast<std::size_t>(tile.rows) * kSize;
  if (bytes < kPitch && tile.to_stride == static_cast<std::ptrdiff_t>(bytes)) {
    return put_narrow(tile, buffer, kPitch, bytes);
  }
  for (int c = 0; c < tile.columns; ++c) {
    std::byte* to = tile.to + c * tile.to_stride;
    const std::byte* from = buffer + c * kPitch;
    if (streaming) {
      const std::size_t lines = bytes / kLine * kLine;
      stream_lines(to, from, lines);
      std::memcpy(to + lines, from + lines, bytes - lines);
    } else if (bytes == kPitch) {
      std::memcpy(to, from, kPitch);
    } else {
      std::memcpy(to, from, bytes);
    }
  }
}

}  // namespace

void turn_tile(const TurnedTile& tile, std::size_t item_bytes, bool streaming) noexcept {
  switch (item_bytes) {
    case 1:
      return turn<1>(tile, streaming);
    case 2:
      return turn<2>(tile, streaming);
    case 4:
      return turn<4>(tile, streaming);
    case 8:
      return turn<8>(tile, streaming);
    case 16:
      return turn<16>(tile, streaming);
    case 32:
      return turn<32>(tile, streaming);
    default:
      return turn<64>(tile, streaming);
  }
}

void prefetch_tile(const TurnedTile& tile, std::size_t item_bytes, bool streaming) noexcept {
  const auto reads = tile.columns * static_cast<std::ptrdiff_t>(item_bytes);
  for (int r = 0; r < tile.rows; ++r) {
    const std::byte* from = tile.from + r * tile.from_stride;
    for (std::ptrdiff_t i = 0; i < reads; i += kLine) __builtin_prefetch(from + i);
  }
  if (streaming) return;
  const auto writes = tile.rows * static_cast<std::ptrdiff_t>(item_bytes);
  for (int c = 0; c < tile.columns; ++c) {
    const std::byte* to = tile.to + c * tile.to_stride;
    for (std::ptrdiff_t i = 0; i < writes; i += kLine) __builtin_prefetch(to + i, 1);
  }
}

#if defined(__x86_64__)
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += kVectorBytes) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
}
void end_streaming() noexcept { _mm_sfence(); }
#else
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}
void end_streaming() noexcept {}
#endif

}  // namespace loom::kernels
