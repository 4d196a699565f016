// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Reductions of rows to a number that see what is not a number, and inner products. Included once
// for each instruction set.

#include "loom/ops/rows/row_loops.h"

namespace loom::ops {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

template <class T>
void extrema(const void* row, std::int64_t columns, float* least, float* most) {
  const T* from = static_cast<const T*>(row);
  const float first = element(from[0]);
  Floats low[kChains], high[kChains];
  Bits not_numbers[kChains];
  for (int chain = 0; chain < kChains; ++chain) {
    low[chain] = high[chain] = all(first);
    not_numbers[chain] = Bits{};
  }
  for_vectors(
      columns, LOOM_EACH {
        const Floats value = get(from, i, count, first);
        low[chain] = smaller(value, low[chain]);
        high[chain] = larger(value, high[chain]);
        not_numbers[chain] |= bits_of<Bits>(value != value);
      });
  for (int chain = 1; chain < kChains; ++chain) {
    low[0] = smaller(low[0], low[chain]);
    high[0] = larger(high[0], high[chain]);
    not_numbers[0] |= not_numbers[chain];
  }
  std::uint32_t any = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) any |= not_numbers[0][lane];
  *least = any != 0 ? __builtin_nanf("") : -largest_of(-low[0]);
  *most = any != 0 ? __builtin_nanf("") : largest_of(high[0]);
}

template <class T>
double sum_of_numbers(const void* row, std::int64_t columns) {
  const T* from = static_cast<const T*>(row);
  double all_of = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kElementsOfSum) {
    const std::int64_t left = columns - begin;
    Sum sum;
    for_vectors(
        left < kElementsOfSum ? left : kElementsOfSum, LOOM_EACH {
          const Floats value = get(from, begin + i, count, 0);
          sum.chains[chain] += value == value ? value : all(0);
        });
    all_of += sum.total();
  }
  return all_of;
}

template <class T>
double product_sum(const void* a, const void* b, std::int64_t columns) {
  const T *one = static_cast<const T*>(a), *two = static_cast<const T*>(b);
  double all_of = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kElementsOfSum) {
    const std::int64_t left = columns - begin;
    Sum sum;
    for_vectors(
        left < kElementsOfSum ? left : kElementsOfSum, LOOM_EACH {
          sum.chains[chain] += get(one, begin + i, count, 0) * get(two, begin + i, count, 0);
        });
    all_of += sum.total();
  }
  return all_of;
}

}  // namespace
}  // namespace loom::ops
