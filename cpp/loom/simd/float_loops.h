// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Loops over rows in vectors of float32; for files as floats.h is for. Thread: any.

#include "loom/simd/floats.h"

namespace loom::simd::LOOM_SIMD {

/// Sums have this many vectors, so that an addition need not wait for the one before.
constexpr int kChains = 4;

#define LOOM_EACH [&](std::int64_t i, std::int64_t count, int chain) __attribute__((always_inline))

/// Calls body(column, count, chain) for the vectors of a row; the last one may be partial.
template <class Body>
[[gnu::always_inline]] inline void for_vectors(std::int64_t columns, Body body) {
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
[[gnu::always_inline]] inline Floats get(const T* row, std::int64_t i, std::int64_t count,
                                         float rest) {
  return count == kLanes ? load(row + i) : load_part(row + i, count, rest);
}
template <class T>
[[gnu::always_inline]] inline void put(T* row, std::int64_t i, std::int64_t count, Floats value) {
  if (count == kLanes) {
    store(row + i, value);
  } else {
    store_part(row + i, value, count);
  }
}

struct Sum {
  Floats chains[kChains] = {};
  [[nodiscard]] [[gnu::always_inline]] inline float total() const {
    return sum_of((chains[0] + chains[1]) + (chains[2] + chains[3]));
  }
};

// So many elements are added to each other in float, and such sums in double: 16 to each lane,
// however wide vectors are, since equal elements are all rounded to the same side.
constexpr std::int64_t kElementsOfSum = 16 * kChains * kLanes;

}  // namespace loom::simd::LOOM_SIMD
