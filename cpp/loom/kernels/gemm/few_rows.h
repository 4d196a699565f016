// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of a few rows with the rows of a matrix (weights, as a linear layer has them), which are
// read once and where they lie, as fast as memory is. Sums are in float32, in an order that depends
// on sizes and the instruction set alone. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// Rows of T times rows of W: to[i * ld + j] = the sum of left[i * left_ld + k] * matrix[j * stride
/// + k], k < inner, for rows i and columns j.
template <class T, class W>
struct FewRows {
  std::int64_t rows, columns, inner;
  const T* left;
  std::int64_t left_ld;
  const W* matrix;
  std::int64_t stride;
  float* to;
  std::int64_t ld;
};

LOOM_SIMD_DECLARE(template <class Product> void multiply_few_rows(const Product& product) noexcept;)

/// Product: FewRows of T and W that are both float, simd::BFloat16 or simd::Half; or of float and
/// std::int8_t.
template <class Product>
inline constexpr simd::Versions multiply_few_rows{LOOM_SIMD_LIST(multiply_few_rows<Product>)};

/// The same by the processor's products of bfloat16, which take numbers that are not normal for 0.
LOOM_SIMD_FROM(avx512_bf16, multiply_few_rows_bfloat16,
               void(const FewRows<simd::BFloat16, simd::BFloat16>& product) noexcept);

}  // namespace loom::kernels::gemm
