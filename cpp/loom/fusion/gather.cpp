// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/gather.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace loom::fusion {
namespace {

constexpr int kMaxDims = 8;

/// Evenly spaced runs of evenly spaced elements; steps are in bytes.
struct Runs {
  std::int64_t count, step;
  std::int64_t elements, stride;  ///< of a run

  [[nodiscard]] std::int64_t all() const { return count * elements; }
};

/// Calls body(address, Runs) for the pieces of a row's columns.
template <class Body>
void each_piece(const Gather& tile, std::byte* row, Body&& body) {
  std::array<std::int64_t, kMaxDims> index{};
  std::int64_t rest = tile.column;
  for (int d = tile.dims; d-- > 0;) {
    index[d] = rest % tile.sizes[d];
    row += index[d] * tile.strides[d];
    rest /= tile.sizes[d];
  }
  if (tile.dims == 0) {
    body(row, Runs{1, 0, tile.columns, 0});
    return;
  }
  const int last = tile.dims - 1;
  for (std::int64_t left = tile.columns;;) {
    Runs runs{1, 0, std::min(left, tile.sizes[last] - index[last]), tile.strides[last]};
    if (last > 0 && runs.elements == tile.sizes[last]) {
      runs.count = std::min(left / runs.elements, tile.sizes[last - 1] - index[last - 1]);
      runs.step = tile.strides[last - 1];
    }
    body(row, runs);
    left -= runs.all();
    if (left == 0) return;
    // The row's pointer stands at index[last]: back to 0, and on in the dimensions before.
    row -= index[last] * tile.strides[last];
    index[last] = 0;
    std::int64_t on = runs.count;
    for (int d = last; d-- > 0; on = 1) {
      row += on * tile.strides[d];
      index[d] += on;
      if (index[d] < tile.sizes[d]) break;
      row -= tile.sizes[d] * tile.strides[d];
      index[d] = 0;
    }
  }
}

template <class Item>
void gather_run(const std::byte* address, std::int64_t stride, std::int64_t count, Item* tile) {
  const auto* from = reinterpret_cast<const Item*>(address);
  // Every second element (parts of complex numbers, too) is what compilers have shuffles for.
  if (stride == 2 * static_cast<std::int64_t>(sizeof(Item))) {
    for (std::int64_t i = 0; i < count; ++i) tile[i] = from[2 * i];
  } else {
    const std::int64_t step = stride / static_cast<std::int64_t>(sizeof(Item));
    for (std::int64_t i = 0; i < count; ++i) tile[i] = from[i * step];
  }
}

// The corners of boxes, the coordinates of points: a loop over runs, not one for each.
template <int kElements, class Item>
void gather_short(const std::byte* address, const Runs& runs, Item* tile) {
  for (std::int64_t r = 0; r < runs.count; ++r, address += runs.step, tile += kElements) {
    for (int i = 0; i < kElements; ++i) {
      tile[i] = *reinterpret_cast<const Item*>(address + i * runs.stride);
    }
  }
}

template <class Item>
void gather_runs(const std::byte* address, const Runs& runs, Item* tile) {
  switch (runs.elements) {
    case 1:
      return gather_run(address, runs.step, runs.count, tile);
    case 2:
      return gather_short<2>(address, runs, tile);
    case 3:
      return gather_short<3>(address, runs, tile);
    case 4:
      return gather_short<4>(address, runs, tile);
    case 5:
      return gather_short<5>(address, runs, tile);
    case 6:
      return gather_short<6>(address, runs, tile);
    default:
      for (std::int64_t r = 0; r < runs.count; ++r) {
        gather_run(address + r * runs.step, runs.stride, runs.elements, tile + r * runs.elements);
      }
  }
}

template <class Item>
void scatter_runs(std::byte* address, const Runs& runs, const Item* tile) {
  for (std::int64_t r = 0; r < runs.count; ++r, address += runs.step) {
    for (std::int64_t i = 0; i < runs.elements; ++i) {
      *reinterpret_cast<Item*>(address + i * runs.stride) = *tile++;
    }
  }
}

/// Four rows of four columns that are dense down the columns, `stride` bytes from each other.
void transpose_square(const std::byte* from, std::int64_t stride, std::uint32_t* to,
                      std::int64_t columns) {
  using Four = std::uint32_t __attribute__((vector_size(16)));  // NOLINT(modernize-use-using)
  Four column[4];
  for (int c = 0; c < 4; ++c) std::memcpy(&column[c], from + c * stride, sizeof(Four));
  const Four low01 = __builtin_shufflevector(column[0], column[1], 0, 4, 1, 5);
  const Four low23 = __builtin_shufflevector(column[2], column[3], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(column[0], column[1], 2, 6, 3, 7);
  const Four high23 = __builtin_shufflevector(column[2], column[3], 2, 6, 3, 7);
  const Four row[] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                      __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                      __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                      __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int r = 0; r < 4; ++r) std::memcpy(to + r * columns, &row[r], sizeof(Four));
}

// Down the columns first: rows are the near direction of a transposed operand. Four columns at a
// time, so that what is written to the tile lies together too.
template <class Item>
void gather_transposed(const Gather& from, Item* tile) {
  const std::int64_t stride = from.strides[0];
  const std::byte* first = from.data + from.column * stride;
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return *reinterpret_cast<const Item*>(first + row * from.row_stride + column * stride);
  };
  std::int64_t c = 0;
  for (; c + 4 <= from.columns; c += 4) {
    std::int64_t r = 0;
    if constexpr (sizeof(Item) == 4) {
      if (from.row_stride == sizeof(Item)) {
        for (; r + 4 <= from.rows; r += 4) {
          transpose_square(first + r * from.row_stride + c * stride, stride,
                           tile + r * from.columns + c, from.columns);
        }
      }
    }
    for (; r < from.rows; ++r) {
      Item* const to = tile + r * from.columns + c;
      const Item items[] = {at(r, c), at(r, c + 1), at(r, c + 2), at(r, c + 3)};
      std::copy(items, items + 4, to);
    }
  }
  for (; c < from.columns; ++c) {
    for (std::int64_t r = 0; r < from.rows; ++r) tile[r * from.columns + c] = at(r, c);
  }
}

template <class Item>
void gather_items(const Gather& from, std::byte* to) {
  auto* tile = reinterpret_cast<Item*>(to);
  if (walks_down(from)) return gather_transposed(from, tile);
  for (std::int64_t r = 0; r < from.rows; ++r) {
    each_piece(from, from.data + r * from.row_stride,
               [&](const std::byte* address, const Runs& runs) {
                 gather_runs(address, runs, tile);
                 tile += runs.all();
               });
  }
}

template <class Item>
void scatter_items(const Gather& to, const std::byte* from) {
  const auto* tile = reinterpret_cast<const Item*>(from);
  for (std::int64_t r = 0; r < to.rows; ++r) {
    each_piece(to, to.data + r * to.row_stride, [&](std::byte* address, const Runs& runs) {
      scatter_runs(address, runs, tile);
      tile += runs.all();
    });
  }
}

/// Calls function(an integer of the item's size).
template <class Function>
void with_item(std::size_t item, Function&& function) {
  switch (item) {
    case 1:
      return function(std::uint8_t{});
    case 2:
      return function(std::uint16_t{});
    case 4:
      return function(std::uint32_t{});
    default:
      return function(std::uint64_t{});
  }
}

}  // namespace

bool walks_down(const Gather& tile) noexcept {
  return tile.dims == 1 && tile.rows > 1 && std::abs(tile.row_stride) < std::abs(tile.strides[0]);
}

void gather_elements(const Gather& from, std::byte* tile) {
  with_item(from.item, [&](auto item) { gather_items<decltype(item)>(from, tile); });
}

void scatter_elements(const Gather& to, const std::byte* tile) {
  with_item(to.item, [&](auto item) { scatter_items<decltype(item)>(to, tile); });
}

}  // namespace loom::fusion
