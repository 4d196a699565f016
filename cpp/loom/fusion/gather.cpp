// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/gather.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace loom::fusion {
namespace {

constexpr int kMaxDims = 8;

/// Calls run(address, stride, count) for each evenly spaced piece of a row's columns.
template <class Run>
void each_run(const Gather& tile, std::byte* row, Run&& run) {
  std::array<std::int64_t, kMaxDims> index{};
  std::int64_t rest = tile.column;
  for (int d = tile.dims; d-- > 0;) {
    index[d] = rest % tile.sizes[d];
    row += index[d] * tile.strides[d];
    rest /= tile.sizes[d];
  }
  if (tile.dims == 0) {
    run(row, std::int64_t{0}, tile.columns);
    return;
  }
  const int last = tile.dims - 1;
  for (std::int64_t left = tile.columns;;) {
    const std::int64_t count = std::min(left, tile.sizes[last] - index[last]);
    run(row, tile.strides[last], count);
    left -= count;
    if (left == 0) return;
    // The row's pointer stands at index[last]: back to 0, and one on in the dimensions before.
    row -= index[last] * tile.strides[last];
    index[last] = 0;
    for (int d = last; d-- > 0;) {
      row += tile.strides[d];
      if (++index[d] < tile.sizes[d]) break;
      row -= tile.sizes[d] * tile.strides[d];
      index[d] = 0;
    }
  }
}

template <std::size_t kItem>
void gather_items(const Gather& from, std::byte* tile) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    each_run(from, from.data + r * from.row_stride,
             [&](const std::byte* address, std::int64_t stride, std::int64_t count) {
               for (std::int64_t i = 0; i < count; ++i) {
                 std::memcpy(tile, address + i * stride, kItem);
                 tile += kItem;
               }
             });
  }
}

template <std::size_t kItem>
void scatter_items(const Gather& to, const std::byte* tile) {
  for (std::int64_t r = 0; r < to.rows; ++r) {
    each_run(to, to.data + r * to.row_stride,
             [&](std::byte* address, std::int64_t stride, std::int64_t count) {
               for (std::int64_t i = 0; i < count; ++i) {
                 std::memcpy(address + i * stride, tile, kItem);
                 tile += kItem;
               }
             });
  }
}

template <class Function>
void with_item(std::size_t item, Function&& function) {
  switch (item) {
    case 1:
      return function(std::integral_constant<std::size_t, 1>{});
    case 2:
      return function(std::integral_constant<std::size_t, 2>{});
    case 4:
      return function(std::integral_constant<std::size_t, 4>{});
    default:
      return function(std::integral_constant<std::size_t, 8>{});
  }
}

}  // namespace

void gather_elements(const Gather& from, std::byte* tile) {
  with_item(from.item, [&](auto item) { gather_items<item()>(from, tile); });
}

void scatter_elements(const Gather& to, const std::byte* tile) {
  with_item(to.item, [&](auto item) { scatter_items<item()>(to, tile); });
}

}  // namespace loom::fusion
