// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rectangles of memory, such as blocks of matrices: rows that lie together, `ld` elements from one
// to the next. Thread: any; only what is passed is touched, and the sides do not overlap.

#include "loom/simd/half.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace loom::kernels {

/// Copies rows of `count` elements, and fills them with zeros up to `filled`.
template <class T>
void copy_rows(std::int64_t rows, std::int64_t count, std::int64_t filled, const T* from,
               std::int64_t from_ld, T* to, std::int64_t to_ld) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * to_ld, from + row * from_ld,
                static_cast<std::size_t>(count) * sizeof(T));
    std::fill(to + row * to_ld + count, to + row * to_ld + filled, T{});
  }
}

template <class T>
void fill_rows(std::int64_t rows, std::int64_t count, T value, T* to, std::int64_t ld) {
  // A call for every row takes longer than its few elements.
  constexpr std::int64_t kFew = 4;
  if (count > kFew) {
    for (std::int64_t row = 0; row < rows; ++row) std::fill_n(to + row * ld, count, value);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t row = 0; row < rows; ++row) to[row * ld + i] = value;
  }
}

/// Fills each row with its element of a column.
template <class T>
void spread_column(std::int64_t rows, std::int64_t count, const T* column, std::int64_t column_step,
                   float* to, std::int64_t ld) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::fill_n(to + row * ld, count, simd::widen(column[row * column_step]));
  }
}

/// to[i * to_step] = from[i * from_step].
template <class T>
void copy_steps(std::int64_t count, const T* from, std::int64_t from_step, T* to,
                std::int64_t to_step) {
  for (std::int64_t i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
}

/// to[i * to_ld + j] += from[j * from_ld + i], for the rows and columns of `to`.
inline void add_transposed(std::int64_t rows, std::int64_t columns, const float* from,
                           std::int64_t from_ld, float* to, std::int64_t to_ld) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) to[i * to_ld + j] += from[j * from_ld + i];
  }
}

}  // namespace loom::kernels
