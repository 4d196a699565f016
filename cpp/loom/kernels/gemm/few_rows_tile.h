// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How products of few rows go through the matrix; for files as simd/floats.h is for. Thread: any.

#include "loom/kernels/gemm/few_rows.h"
#include "loom/simd/lane_sums.h"

#include <algorithm>

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

/// Rows of the matrix that are read at a time, so that a row of the left operand is loaded for all
/// of them. One row alone reads memory in its order, which is fastest.
constexpr int kPlaces = 4;

// So far ahead memory is read: the processor does not foresee several places that move together.
constexpr std::int64_t kAheadBytes = 12 << 10;
// One place the processor foresees to the end of a page.
constexpr std::int64_t kAheadOfOneBytes = 2 << 10;

/// Sums of the products of kRows rows and kColumns columns. `Pair` says what a step is: its
/// elements (kStep), and what is done with them. What is `ahead` elements further is fetched.
template <int kRows, int kColumns, class Pair, class T, class W>
[[gnu::always_inline]] inline void sum_products(const FewRows<T, W>& p, const T* const* left,
                                                const W* const* matrix, std::int64_t ahead,
                                                Floats (&sums)[kRows][kColumns]) {
  // Enough sums that additions need not wait for each other.
  constexpr int kChains = kRows * kColumns >= 8 ? 1 : (kColumns == 1 ? 4 : 2);
  Floats chains[kChains][kRows][kColumns] = {};
  const auto add = [&](std::int64_t k, auto& to, bool fetch, auto load)
                       __attribute__((always_inline)) {
                         typename Pair::Left rows[kRows];
                         for (int r = 0; r < kRows; ++r) rows[r] = load(Pair(), left[r] + k);
                         for (int c = 0; c < kColumns; ++c) {
                           const typename Pair::Right column = load(Pair(), matrix[c] + k);
                           if (fetch) __builtin_prefetch(matrix[c] + k + ahead);
                           for (int r = 0; r < kRows; ++r)
                             to[r][c] = Pair::add(to[r][c], rows[r], column);
                         }
                       };
  const auto whole = [](auto pair, const auto* from)
                         __attribute__((always_inline)) { return pair.whole(from); };
  std::int64_t k = 0;
  for (; k + kChains * Pair::kStep <= p.inner; k += kChains * Pair::kStep) {
    for (int chain = 0; chain < kChains; ++chain) {
      // Once a cache line.
      constexpr std::int64_t kBytes = Pair::kStep * static_cast<std::int64_t>(sizeof(W));
      add(k + chain * Pair::kStep, chains[chain], chain * kBytes % 64 == 0, whole);
    }
  }
  for (; k + Pair::kStep <= p.inner; k += Pair::kStep) add(k, chains[0], false, whole);
  if (const std::int64_t rest = p.inner - k; rest > 0) {
    add(k, chains[0], false, [=](auto pair, const auto* from) __attribute__((always_inline)) {
      return pair.part(from, rest);
    });
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      sums[r][c] = chains[0][r][c];
      for (int chain = 1; chain < kChains; ++chain) sums[r][c] += chains[chain][r][c];
    }
  }
}

/// As many columns as make a vector of sums.
template <int kRows, class Pair, class T, class W>
[[gnu::always_inline]] inline void multiply_columns(const FewRows<T, W>& p, std::int64_t row,
                                                    std::int64_t first) {
  constexpr int kAll = static_cast<int>(kLanes) / kRows;
  constexpr int kColumns = kRows == 1 ? 1 : (kAll < kPlaces ? kAll : kPlaces);
  // The first rows fetch the columns that all will meet, but none that are another core's.
  constexpr std::int64_t kBytes = kRows == 1 ? kAheadOfOneBytes : kAheadBytes;
  const std::int64_t lines = kBytes / (p.stride * static_cast<std::int64_t>(sizeof(W))) + 1;
  const std::int64_t further = (lines + kColumns - 1) / kColumns * kColumns;
  // The last row and the last column stand for those that are beyond them.
  const T* left[kRows];
  for (int r = 0; r < kRows; ++r) left[r] = p.left + std::min(row + r, p.rows - 1) * p.left_ld;
  Floats all_sums[kLanes];
  for (int c = 0; c < kAll; c += kColumns) {
    const W* matrix[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      const std::int64_t column = first + c + j < p.columns ? first + c + j : p.columns - 1;
      matrix[j] = p.matrix + column * p.stride;
    }
    const bool fetches = row == 0 && first + c + kColumns + further <= p.columns;
    const std::int64_t ahead = fetches ? further * p.stride : 0;
    Floats sums[kRows][kColumns];
    sum_products<kRows, kColumns, Pair>(p, left, matrix, ahead, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kColumns; ++j) all_sums[r * kAll + c + j] = sums[r][j];
    }
  }
  float lanes[kLanes];
  store(lanes, sums_of_lanes(all_sums));
  const std::int64_t columns = p.columns - first, rows = p.rows - row;
  for (int r = 0; r < kRows && r < rows; ++r) {
    float* const to = p.to + (row + r) * p.ld + first;
    for (int c = 0; c < kAll && c < columns; ++c) to[c] = lanes[r * kAll + c];
  }
}

/// kRows rows from `row` on, or as many as there are, times some columns.
template <int kRows, class Pair, class T, class W>
[[gnu::always_inline]] inline void multiply_rows(const FewRows<T, W>& p, std::int64_t row,
                                                 std::int64_t first) {
  for (std::int64_t j = 0; j < kLanes && first + j < p.columns; j += kLanes / kRows) {
    multiply_columns<kRows, Pair>(p, row, first + j);
  }
}

/// Some rows of the matrix meet all rows while they are near.
template <class Pair, class T, class W>
[[gnu::always_inline]] inline void multiply_all(const FewRows<T, W>& p) {
  for (std::int64_t first = 0; first < p.columns; first += kLanes) {
    for (std::int64_t row = 0; row < p.rows; row += 4) {
      const std::int64_t rows = p.rows - row;
      if (rows > 2) {
        multiply_rows<4, Pair>(p, row, first);
      } else if (rows == 2) {
        multiply_rows<2, Pair>(p, row, first);
      } else {
        multiply_rows<1, Pair>(p, row, first);
      }
    }
  }
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
