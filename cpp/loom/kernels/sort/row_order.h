// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The order of whole rows, of which the first elements that differ decide. Thread: any.

#include "loom/kernels/comparable.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace loom::kernels::sort {

/// Writes the numbers of `count` dense rows, of numbers, simd::Half or simd::BFloat16, in the order
/// of the rows. That of equal rows, and of those with what is not a number, is any.
template <class T>
void order_rows(const T* rows, std::int64_t count, std::int64_t width, std::int64_t* order) {
  std::iota(order, order + count, std::int64_t{0});
  std::sort(order, order + count, [=](std::int64_t a, std::int64_t b) {
    const T *left = rows + a * width, *right = rows + b * width;
    for (std::int64_t i = 0; i < width; ++i) {
      const auto one = comparable(left[i]), other = comparable(right[i]);
      if (one < other) return true;
      if (one > other) return false;
    }
    return false;
  });
}

}  // namespace loom::kernels::sort
