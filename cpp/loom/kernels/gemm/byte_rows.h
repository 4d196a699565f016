// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of rows of bytes with the rows of a matrix of bytes, both where they lie, for rows that
// are too few to be worth a packed matrix. Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// to[i * ld + j] = the sum of left[i * left_ld + k] * matrix[j * stride + k], k < inner, modulo
/// 2^32, for rows i and columns j.
struct ByteRows {
  std::int64_t rows, columns, inner;
  const std::int8_t* left;
  std::int64_t left_ld;
  const std::int8_t* matrix;
  std::int64_t stride;
  std::int32_t* to;
  std::int64_t ld;
};

/// Bytes are widened, and multiplied in pairs of 16 bits.
LOOM_SIMD_VERSIONS(multiply_byte_rows, void(const ByteRows& product) noexcept);

/// By the processor's products of four bytes each, twice as fast.
LOOM_SIMD_FROM(avx512_bf16, multiply_byte_rows_by_four, void(const ByteRows& product) noexcept);

}  // namespace loom::kernels::gemm
