// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Loops over the vectors of a row: included once for each instruction set.

#include "loom/ops/rows/row_vector.h"

namespace loom::ops {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

/// Sums have this many vectors, so that an addition need not wait for the one before.
constexpr int kChains = 4;

#define LOOM_EACH [&](std::int64_t i, std::int64_t count, int chain) __attribute__((always_inline))

/// Calls body(column, count, chain) for the vectors of a row; the last one may be partial.
template <class Body>
LOOM_ROW_INLINE void for_vectors(std::int64_t columns, Body body) {
  std::int64_t column = 0;
  for (; column + kChains * kLanes <= columns; column += kChains * kLanes) {
    body(column, kLanes, 0);
    body(column + kLanes, kLanes, 1);
    body(column + 2 * kLanes, kLanes, 2);
    body(column + 3 * kLanes, kLanes, 3);
  }
  for (; column + kLanes <= columns; column += kLanes) body(column, kLanes, 0);
  if (column < columns) body(column, columns - column, 1);
}

/// Lanes beyond `count` are `rest`.
template <class T>
LOOM_ROW_INLINE Floats get(const T* row, std::int64_t i, std::int64_t count, float rest) {
  return count == kLanes ? load(row + i) : load_part(row + i, count, rest);
}
template <class T>
LOOM_ROW_INLINE void put(T* row, std::int64_t i, std::int64_t count, Floats value) {
  if (count == kLanes) {
    store(row + i, value);
  } else {
    store_part(row + i, value, count);
  }
}

struct Sum {
  Floats chains[kChains] = {};
  [[nodiscard]] LOOM_ROW_INLINE float total() const {
    return sum_of((chains[0] + chains[1]) + (chains[2] + chains[3]));
  }
};

// So many elements are added to each other in float, and such sums in double: 16 to each lane,
// however wide vectors are, since equal elements are all rounded to the same side.
constexpr std::int64_t kElementsOfSum = 16 * kChains * kLanes;

}  // namespace
}  // namespace loom::ops
