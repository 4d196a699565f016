// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows that are added up by an index, each row of the result by itself: gradients of embeddings.
// Thread: any.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace loom::kernels::index {

/// The places of an index as lists, one for each row that it names, in their order.
struct RowLists {
  std::vector<std::int64_t> first, next;  ///< -1 at the end
  std::int64_t longest = 0;
};

/// What is no row, or `padding_index`, is in no list.
template <class Indices>
RowLists lists_of(const Indices& indices, std::int64_t count, std::int64_t rows,
                  std::int64_t padding_index) {
  RowLists lists;
  lists.first.assign(static_cast<std::size_t>(rows), -1);
  lists.next.assign(static_cast<std::size_t>(count), -1);
  std::vector<std::int64_t> length(static_cast<std::size_t>(rows));
  for (std::int64_t i = count - 1; i >= 0; --i) {
    const auto row = static_cast<std::int64_t>(indices[i]);
    if (row == padding_index || row < 0 || row >= rows) continue;
    const auto at = static_cast<std::size_t>(row);
    lists.next[static_cast<std::size_t>(i)] = std::exchange(lists.first[at], i);
    lists.longest = std::max(lists.longest, ++length[at]);
  }
  return lists;
}

}  // namespace loom::kernels::index
