// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What products with weights of four bits do with a group's sums; for files as simd/floats.h is
// for. Thread: any.

#include "loom/simd/floats.h"

#include <utility>

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

// Fetched ahead of a block's inner elements, which lie in their order.
constexpr std::int64_t kInt4AheadBytes = 2048;

template <int kFirst, int... kLane>
[[gnu::always_inline]] inline Floats every_other(Floats a, Floats b,
                                                 std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, (2 * kLane + kFirst)...);
}

template <class T>
[[gnu::always_inline]] inline float sum_of_row(const T* row, std::int64_t count) {
  Floats sum = {};
  for (std::int64_t i = 0; i < count; i += kLanes) sum += load(row + i);
  return sum_of(sum);
}

/// Adds what a group has summed up of kLanes columns. Digits q were multiplied as `Digits` says: as
/// (q - 8) / kScale + kBias / kScale.
template <class Digits, class T>
[[gnu::always_inline]] inline void add_group(const T* scales, Floats sum, float all_of_row,
                                             float* to) {
  constexpr auto kSequence = std::make_integer_sequence<int, static_cast<int>(kLanes)>();
  const Floats a = load(scales), b = load(scales + kLanes);
  const Floats scale = every_other<0>(a, b, kSequence), zero = every_other<1>(a, b, kSequence);
  const Floats bias = zero - scale * Digits::kBias;
  store(to, load(to) + scale * Digits::kScale * sum + bias * all_of_row);
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
