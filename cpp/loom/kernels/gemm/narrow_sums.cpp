// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/narrow_sums.h"

#include "loom/simd/floats.h"

#include <algorithm>
#include <utility>

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

/// Rows that are read for some columns of `left` after the others: they stay in the first-level
/// cache, and sums of so many are rounded less than longer ones.
constexpr std::int64_t kNear = 256;
/// Columns of `left` at a time, whose sums are in registers.
constexpr int kAtOnce = kLanes < 16 ? 4 : 8;
constexpr int kMaxVectors = static_cast<int>(kMaxNarrowSums / kLanes);

// Unlike a sum with 0, a difference from it is what it was, and so is no instruction.
[[gnu::always_inline]] inline Floats spread(float value) { return value - Floats{}; }

/// kColumns columns of `left`, kVectors vectors of columns of `right`, the last of which has `last`
/// columns. Additions wait for each other, so few sums are made in two parts.
template <int kColumns, int kVectors>
struct Sums {
  static constexpr int kChains = kColumns * kVectors > 4 ? 1 : 2;
  Floats of[kChains][kColumns][kVectors] = {};

  template <bool kWhole>
  [[gnu::always_inline]] inline void add(int chain, const NarrowSums& p, const float* left,
                                         const float* right, std::int64_t last) {
    Floats row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const bool whole = kWhole || v + 1 < kVectors;
      row[v] = whole ? load(right + v * kLanes) : load_part(right + v * kLanes, last, 0);
    }
    for (int c = 0; c < kColumns; ++c) {
      const Floats factor = spread(left[c * p.left_column]);
      for (int v = 0; v < kVectors; ++v) of[chain][c][v] += factor * row[v];
    }
  }
  [[gnu::always_inline]] inline void add_to(float* to) const {
    for (int c = 0; c < kColumns; ++c) {
      for (int v = 0; v < kVectors; ++v) {
        float* const at = to + c * kMaxNarrowSums + v * kLanes;
        Floats sum = load(at) + of[0][c][v];
        if (kChains > 1) sum += of[kChains - 1][c][v];
        store(at, sum);
      }
    }
  }
};

/// Rows [begin, end) for kColumns columns of `left` from `first` on. Up to row `whole` there are as
/// many elements behind a row of `right` as fill a vector.
template <int kColumns, int kVectors>
[[gnu::always_inline]] inline void add_rows(const NarrowSums& p, std::int64_t first,
                                            std::int64_t begin, std::int64_t end,
                                            std::int64_t whole) {
  Sums<kColumns, kVectors> sums;
  constexpr int kChains = Sums<kColumns, kVectors>::kChains;
  const std::int64_t last = p.right_columns - (kVectors - 1) * kLanes;
  const float* const left = p.left + first * p.left_column;
  std::int64_t row = begin;
  for (; row + kChains <= std::min(end, whole); row += kChains) {
    for (int chain = 0; chain < kChains; ++chain) {
      sums.template add<true>(chain, p, left + (row + chain) * p.left_row,
                              p.right + (row + chain) * p.right_row, last);
    }
  }
  for (; row < end; ++row) {
    sums.template add<false>(0, p, left + row * p.left_row, p.right + row * p.right_row, last);
  }
  sums.add_to(p.to + first * kMaxNarrowSums);
}

template <int kVectors>
[[gnu::always_inline]] inline void add_all(const NarrowSums& p) {
  const std::int64_t beyond = kVectors * kLanes - p.right_columns;
  const std::int64_t behind = (beyond + p.right_row - 1) / p.right_row;
  const std::int64_t whole = beyond == 0 ? p.rows : std::max<std::int64_t>(p.rows - behind, 0);
  for (std::int64_t begin = 0; begin < p.rows; begin += kNear) {
    const std::int64_t end = std::min(begin + kNear, p.rows);
    std::int64_t column = 0;
    for (; column + kAtOnce <= p.left_columns; column += kAtOnce) {
      add_rows<kAtOnce, kVectors>(p, column, begin, end, whole);
    }
    [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
      ((p.left_columns - column == kLess + 1
            ? add_rows<kLess + 1, kVectors>(p, column, begin, end, whole)
            : void()),
       ...);
    }(std::make_integer_sequence<int, kAtOnce - 1>{});
  }
}

}  // namespace

void add_narrow_sums(const NarrowSums& p) noexcept {
  const std::int64_t vectors = (p.right_columns + kLanes - 1) / kLanes;
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    ((vectors == kLess + 1 ? add_all<kLess + 1>(p) : void()), ...);
  }(std::make_integer_sequence<int, kMaxVectors>{});
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
