// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows of few elements, kTurnedRows at a time, turned: element c of row r is number
// c * kTurnedRows + r, so that vectors are full. Thread: any; only what is passed is touched.

#include "loom/kernels/copy/transpose_tile.h"

#include <algorithm>
#include <cstdint>

namespace loom::kernels::norm {

/// Whole vectors of every instruction set.
inline constexpr std::int64_t kTurnedRows = 64;

/// Turns at most kTurnedRows dense rows. Lanes of rows that are not there are zeros: what happened
/// to lie there might be slow.
template <class T>
void turn_rows(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
  if (rows < kTurnedRows) std::fill_n(to, columns * kTurnedRows, T{});
  turn_matrix(from, columns, rows, columns, to, kTurnedRows);
}

template <class T>
void turn_back(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
  turn_matrix(from, kTurnedRows, columns, rows, to, columns);
}

}  // namespace loom::kernels::norm
