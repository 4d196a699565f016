// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/listed_sums.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/index/listed_sums.h"
#include "loom/ops/launch/elements.h"

#include <algorithm>

namespace loom::ops {

// A block is some rows, each of which is made as a whole while it is in the caches. If many of the
// gradients are one row's, blocks are parts of rows.
void sum_listed_rows(Grid& grid, const TensorRef& result, const TensorRef& index,
                     const ListedRows& source, std::int64_t padding) {
  // Of a block, written or added, so that few rows with many gradients are several; of a part of a
  // row.
  constexpr std::int64_t kElements = 32 << 10, kColumns = 64;
  const std::int64_t rows = result.sizes()[0], columns = result.sizes()[1], count = index.numel();
  using kernels::index::lists_of;
  const kernels::index::RowLists lists =
      index.dtype() == c10::kLong
          ? lists_of(elements<const std::int64_t>(index), count, rows, padding)
          : lists_of(elements<const std::int32_t>(index), count, rows, padding);
  const bool even = lists.longest <= std::max<std::int64_t>(count / 8, 16);
  const std::int64_t blocks = std::max(rows, count) * columns / kElements + 1;
  const std::int64_t length = ceil_div(rows, blocks);
  const std::int64_t width = even ? columns : kColumns;
  const std::int64_t down = ceil_div(rows, length), across = ceil_div(columns, width);
  with_floats(result.dtype(), [&]<class Element>(Element) {
    using T = Stored<Element>;
    grid.run_by_any(down * across, [&](std::int64_t block) {
      kernels::index::ListedSums<T> sums(
          lists, {elements<const T>(source.rows), columns, source.row_of, source.factors});
      const std::int64_t row = block / across * length, begin = block % across * width;
      for (std::int64_t r = row; r < std::min(rows, row + length); ++r) {
        sums.write(r, begin, std::min(columns, begin + width),
                   elements<T>(result) + r * columns + begin);
      }
    });
  });
}

}  // namespace loom::ops
