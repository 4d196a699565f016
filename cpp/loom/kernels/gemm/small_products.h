// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Batches of products of small matrices, whose elements may lie anywhere. Sums are in double for
// double, in float32 for all other types, one product after the other. Thread: any; only what is
// passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// From here on a kernel for blocks is as fast as these loops.
inline constexpr std::int64_t kMostProduct = 16 * 16 * 16;

/// A matrix for each item of a batch; strides are in elements.
template <class T>
struct Batch {
  T* data = nullptr;
  std::int64_t item = 0, row = 0, column = 0;

  [[nodiscard, gnu::always_inline]] T& at(std::int64_t r, std::int64_t c) const {
    return data[r * row + c * column];
  }
  [[nodiscard, gnu::always_inline]] Batch of(std::int64_t i) const {
    return {data + i * item, 0, row, column};
  }
};

/// What numbers of a type are summed up in.
template <class T>
using Sum = decltype(simd::widen(T()));

/// result = alpha * (left x right) + beta * addend for each item of a batch; `addend` is not read
/// if beta is 0. Requires: rows * inner * columns <= kMostProduct.
template <class T>
struct SmallProducts {
  Batch<T> result;
  Batch<const T> addend, left, right;
  std::int64_t rows, inner, columns;
  Sum<T> alpha, beta;
};

#define LOOM_MULTIPLY_ITEMS(T) \
  void multiply_items(const SmallProducts<T>& p, std::int64_t begin, std::int64_t end) noexcept;
LOOM_SIMD_DECLARE(LOOM_MULTIPLY_ITEMS(float) LOOM_MULTIPLY_ITEMS(double)
                      LOOM_MULTIPLY_ITEMS(simd::Half) LOOM_MULTIPLY_ITEMS(simd::BFloat16))
#undef LOOM_MULTIPLY_ITEMS

/// Items [begin, end) of the batch. T: float, double, simd::Half, simd::BFloat16.
template <class T>
inline constexpr simd::Versions<void(const SmallProducts<T>& p, std::int64_t begin,
                                     std::int64_t end) noexcept>
    multiply_items{LOOM_SIMD_LIST(multiply_items)};

}  // namespace loom::kernels::gemm
