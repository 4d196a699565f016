// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Inner products of vectors with the rows of a matrix, as fast as memory is. Sums are in float32,
// in an order that depends on `inner` and the instruction set alone. Thread: any; only what is
// passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

#define LOOM_DOT_ROWS(T)                                                                  \
  void dot_rows(const T* vector, const T* matrix, std::int64_t stride, std::int64_t rows, \
                std::int64_t inner, float* to) noexcept;
LOOM_SIMD_DECLARE(LOOM_DOT_ROWS(float) LOOM_DOT_ROWS(simd::BFloat16) LOOM_DOT_ROWS(simd::Half))
#undef LOOM_DOT_ROWS

/// to[i] = the sum of vector[k] * matrix[i * stride + k], k < inner. T: float, simd::BFloat16,
/// simd::Half.
template <class T>
inline constexpr simd::Versions<void(const T* vector, const T* matrix, std::int64_t stride,
                                     std::int64_t rows, std::int64_t inner, float* to) noexcept>
    dot_rows{LOOM_SIMD_LIST(dot_rows)};

/// The same of four vectors, `vector_stride` apart: to[v * ld + i].
LOOM_SIMD_VERSIONS(dot_four, void(const float* vectors, std::int64_t vector_stride,
                                  const float* matrix, std::int64_t stride, std::int64_t rows,
                                  std::int64_t inner, float* to, std::int64_t ld) noexcept);

}  // namespace loom::kernels::gemm
