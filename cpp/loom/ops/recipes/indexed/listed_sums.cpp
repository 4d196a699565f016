// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/listed_sums.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/index/row_lists.h"
#include "loom/kernels/pool_resample/mix_rows.h"
#include "loom/ops/launch/elements.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <vector>

namespace loom::ops {
namespace {

using kernels::index::lists_of;
using kernels::index::RowLists;

/// The sums of a block, whose rows have the same columns.
template <class T>
class Sums {
 public:
  Sums(T* to, const ListedRows& source, const RowLists& lists, std::int64_t columns)
      : to_(to),
        from_(elements<const T>(source.rows)),
        source_(source),
        lists_(lists),
        columns_(columns) {}

  /// Columns [begin, end) of a row.
  void add(std::int64_t row, std::int64_t begin, std::int64_t end) {
    rows_.clear();
    factors_.clear();
    for (std::int64_t i = lists_.first[static_cast<std::size_t>(row)]; i >= 0;
         i = lists_.next[static_cast<std::size_t>(i)]) {
      rows_.push_back(from_ + (source_.row_of != nullptr ? source_.row_of[i] : i) * columns_ +
                      begin);
      factors_.push_back(source_.factors != nullptr ? source_.factors[i] : 1.0F);
    }
    T* const to = to_ + row * columns_ + begin;
    const std::int64_t width = end - begin;
    if constexpr (std::is_same_v<T, float>) {
      mix(width, to);
    } else {
      wide_.resize(static_cast<std::size_t>(width));
      mix(width, wide_.data());
      kernels::round_row<T>(to, wide_.data(), width);
    }
  }

 private:
  void mix(std::int64_t width, float* to) {
    kernels::pool_resample::mix_to_floats<T>(rows_.data(), factors_.data(), std::ssize(rows_),
                                             width, to);
    // Sums of negative zeros, too, begin with 0.
    for (std::int64_t c = 0; c < width; ++c) to[c] += 0.0F;
  }

  T* const to_;
  const T* const from_;
  const ListedRows& source_;
  const RowLists& lists_;
  const std::int64_t columns_;
  std::vector<const T*> rows_;
  std::vector<float> factors_, wide_;
};

}  // namespace

// A block is some rows, each of which is made as a whole while it is in the caches. If many of the
// gradients are one row's, blocks are parts of rows.
void sum_listed_rows(Grid& grid, const TensorRef& result, const TensorRef& index,
                     const ListedRows& source, std::int64_t padding) {
  // Of a block, written or added, so that few rows with many gradients are several; of a part of a
  // row.
  constexpr std::int64_t kElements = 32 << 10, kColumns = 64;
  const std::int64_t rows = result.sizes()[0], columns = result.sizes()[1], count = index.numel();
  const RowLists lists = index.dtype() == c10::kLong
                             ? lists_of(elements<const std::int64_t>(index), count, rows, padding)
                             : lists_of(elements<const std::int32_t>(index), count, rows, padding);
  const bool even = lists.longest <= std::max<std::int64_t>(count / 8, 16);
  const std::int64_t blocks = std::max(rows, count) * columns / kElements + 1;
  const std::int64_t length = ceil_div(rows, blocks);
  const std::int64_t width = even ? columns : kColumns;
  const std::int64_t down = ceil_div(rows, length), across = ceil_div(columns, width);
  with_floats(result.dtype(), [&]<class T>(T) {
    grid.run_by_any(down * across, [&](std::int64_t block) {
      Sums<Stored<T>> sums(elements<Stored<T>>(result), source, lists, columns);
      const std::int64_t row = block / across * length, begin = block % across * width;
      for (std::int64_t r = row; r < std::min(rows, row + length); ++r) {
        sums.add(r, begin, std::min(columns, begin + width));
      }
    });
  });
}

}  // namespace loom::ops
