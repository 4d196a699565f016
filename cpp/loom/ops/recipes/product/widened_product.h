// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of half types, whose operands become float32 before they are multiplied: by all cores,
// and as much at a time as a far cache has room for. Their layout stays. Thread: the worker.

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/product_blocks.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace loom::ops::detail {

/// Whether elements are widened: of float16 always, of bfloat16 where nothing multiplies them.
template <class T>
[[nodiscard]] bool is_widened() {
  if constexpr (std::is_same_v<T, c10::BFloat16>) return !has_bfloat16_kernel();
  return std::is_same_v<T, c10::Half>;
}

// Elements of an operand that are widened at a time, and by a task.
inline constexpr std::int64_t kMostWidened = 4 << 20;
inline constexpr std::int64_t kWidenedAtOnce = 32 << 10;
// Shorter lines cost more by themselves than rows at distances of cache lines are worth.
inline constexpr std::int64_t kShortLine = 64;

inline const Scratch t_widened_left, t_widened_right;

/// A batch of matrices as lines, rows or columns, and where their copies are.
template <class T>
class Widening {
 public:
  Widening(const Operand<const T>& from, std::int64_t batch, const Scratch& scratch)
      : by_rows_(from.first.row_major()),
        from_{by_rows_ ? from.first : from.first.transposed(), from.step},
        items_(from.step == 0 ? 1 : batch),
        dense_(from_.first.row_stride == from_.first.columns && from_.first.columns < kShortLine),
        ld_(dense_ ? from_.first.columns : row_step<float>(from_.first.columns)),
        at_once_(std::max<std::int64_t>(kWidenedAtOnce / ld_, 1)),
        to_(scratch.get<float>(items_ * from_.first.rows * ld_)) {}

  [[nodiscard]] std::int64_t tasks() const noexcept { return ceil_div(lines(), at_once_); }

  void run(std::int64_t task) const {
    const std::int64_t begin = task * at_once_, end = std::min(begin + at_once_, lines());
    for (std::int64_t line = begin, count = 1; line < end; line += count) {
      const MatrixView<const T> item = from_.item(line / from_.first.rows);
      const std::int64_t row = line % item.rows;
      if (dense_) count = std::min(end - line, item.rows - row);
      kernels::widen_row<Stored<T>>(to_ + line * ld_, stored(item.data + row * item.row_stride),
                                    count * item.columns);
    }
  }

  [[nodiscard]] Operand<const float> widened() const noexcept {
    const MatrixView<const float> lines{to_, from_.first.rows, from_.first.columns, ld_, 1};
    return {by_rows_ ? lines : lines.transposed(), items_ == 1 ? 0 : lines.rows * ld_};
  }

 private:
  [[nodiscard]] std::int64_t lines() const noexcept { return items_ * from_.first.rows; }

  bool by_rows_;
  Operand<const T> from_;
  std::int64_t items_;
  bool dense_;  ///< lines follow each other without a gap, and are widened many at a time
  std::int64_t ld_, at_once_;
  float* to_;
};

/// `count` items of the batch from `first` on, of some rows and columns of each.
template <class T>
Problem<T> part_of(const Problem<T>& p, std::int64_t first, std::int64_t count, std::int64_t row,
                   std::int64_t rows, std::int64_t column, std::int64_t columns) {
  const auto moved = [=](auto operand, std::int64_t r, std::int64_t height, std::int64_t c,
                         std::int64_t width) {
    operand.first = operand.item(first).part(r, c, height, width);
    return operand;
  };
  return {.result = moved(p.result, row, rows, column, columns),
          .addend = moved(p.addend, row, rows, column, columns),
          .left = moved(p.left, row, rows, 0, p.inner()),
          .right = moved(p.right, 0, p.inner(), column, columns),
          .batch = count,
          .options = p.options,
          .row = first * p.rows() + row,
          .column = column};
}

/// Calls run(widened) for the parts of a product.
template <class T, class Run>
void run_widened(Grid& grid, const Problem<T>& p, Run&& run) {
  const std::int64_t most = std::max<std::int64_t>(kMostWidened / p.inner(), 1);
  const auto even = [=](std::int64_t count) { return cut(count, ceil_div(count, most), kRowUnit); };
  const std::int64_t rows = even(p.rows()), columns = even(p.columns());
  const std::int64_t items =
      std::min(p.batch, std::max<std::int64_t>(most / std::max(rows, columns), 1));
  for (std::int64_t first = 0; first < p.batch; first += items) {
    for (std::int64_t row = 0; row < p.rows(); row += rows) {
      for (std::int64_t column = 0; column < p.columns(); column += columns) {
        const Problem<T> part =
            part_of(p, first, std::min(items, p.batch - first), row, std::min(rows, p.rows() - row),
                    column, std::min(columns, p.columns() - column));
        const Widening left(part.left, part.batch, t_widened_left);
        const Widening right(part.right, part.batch, t_widened_right);
        grid.run_by_any(left.tasks() + right.tasks(), [&](std::int64_t task) {
          task < left.tasks() ? left.run(task) : right.run(task - left.tasks());
        });
        run(Problem<T, float>{.result = part.result,
                              .addend = part.addend,
                              .left = left.widened(),
                              .right = right.widened(),
                              .batch = part.batch,
                              .options = part.options,
                              .row = part.row,
                              .column = part.column});
      }
    }
  }
}

}  // namespace loom::ops::detail
