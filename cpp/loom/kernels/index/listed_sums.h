// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums of the rows that a list names, computed in float32 and rounded once. T: float,
// simd::BFloat16, simd::Half. Thread: any; an object is one thread's.

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/index/row_lists.h"
#include "loom/kernels/pool_resample/mix_rows.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <vector>

namespace loom::kernels::index {

/// What is added for each place of an index: rows that lie side by side.
template <class T>
struct ListedRows {
  const T* rows;
  std::int64_t columns;
  const std::int64_t* row_of = nullptr;  ///< of each place; null: a row for each
  const float* factors = nullptr;        ///< of each place; null: 1
};

template <class T>
class ListedSums {
 public:
  ListedSums(const RowLists& lists, const ListedRows<T>& source) noexcept
      : lists_(lists), source_(source) {}

  /// to = the sum of columns [begin, end) of a list's rows; 0 of none.
  void write(std::int64_t list, std::int64_t begin, std::int64_t end, T* to) {
    start();
    take(list, begin);
    const std::int64_t width = end - begin;
    if constexpr (std::is_same_v<T, float>) {
      mix_from_zero(width, to);
    } else {
      mix_from_zero(width, wide(width));
      round_row<T>(to, wide_.data(), width);
    }
  }
  /// The same added to what is there.
  void add(std::int64_t list, std::int64_t begin, std::int64_t end, T* to) {
    if (lists_.first[static_cast<std::size_t>(list)] < 0) return;
    start();
    push(to, 1);
    take(list, begin);
    mix(end - begin, wide(end - begin));
    round_row<T>(to, wide_.data(), end - begin);
  }

 private:
  void start() noexcept {
    rows_.clear();
    factors_.clear();
  }
  void push(const T* row, float factor) {
    rows_.push_back(row);
    factors_.push_back(factor);
  }
  void take(std::int64_t list, std::int64_t begin) {
    for (std::int64_t i = lists_.first[static_cast<std::size_t>(list)]; i >= 0;
         i = lists_.next[static_cast<std::size_t>(i)]) {
      const std::int64_t row = source_.row_of != nullptr ? source_.row_of[i] : i;
      push(source_.rows + row * source_.columns + begin,
           source_.factors != nullptr ? source_.factors[i] : 1.0F);
    }
  }
  [[nodiscard]] float* wide(std::int64_t width) {
    wide_.resize(static_cast<std::size_t>(width));
    return wide_.data();
  }
  void mix(std::int64_t width, float* to) const noexcept {
    pool_resample::mix_to_floats<T>(rows_.data(), factors_.data(), std::ssize(rows_), width, to);
  }
  void mix_from_zero(std::int64_t width, float* to) const noexcept {
    mix(width, to);
    // Sums of negative zeros, too, begin with 0.
    for (std::int64_t c = 0; c < width; ++c) to[c] += 0.0F;
  }

  const RowLists& lists_;
  const ListedRows<T> source_;
  std::vector<const T*> rows_;
  std::vector<float> factors_, wide_;
};

}  // namespace loom::kernels::index
