// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of rows of floats with weights of four bits as _convert_weight_to_int4pack_for_cpu()
// packs them: 0 to 15, of which 8 is subtracted, with a scale and a zero point for each group of
// inner elements. Sums are in float32. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// Columns that have a scale and a zero each at a time, so a multiple of all vectors.
inline constexpr std::int64_t kMaxInt4Columns = 64;

/// to[i * ld + j] = the sum of left[i * left_ld + k] * ((weight(k, j) - 8) * scale + zero) for the
/// columns of one packed block. Byte `b` of an inner element has the weights of columns b and b +
/// columns / 2 if it is `split`, in its lower and its upper half, else those of 2b and 2b + 1.
template <class T, class Left = float>
struct Int4Rows {
  std::int64_t rows, columns;  ///< columns: a multiple of 16, at most kMaxInt4Columns
  std::int64_t inner, group;   ///< group: a multiple of 32
  const Left* left;
  std::int64_t left_ld;
  const std::uint8_t* packed;
  bool split;
  const T* scales;         ///< scale and zero of each column of the first group
  std::int64_t scales_ld;  ///< from group to group
  float* to;
  std::int64_t ld;
};

LOOM_SIMD_DECLARE(template <class T> void multiply_int4_rows(const Int4Rows<T>& product) noexcept;)

/// T: float, simd::BFloat16, simd::Half.
template <class T>
inline constexpr simd::Versions multiply_int4_rows{LOOM_SIMD_LIST(multiply_int4_rows<T>)};

/// The same by the processor's products of bfloat16, which take numbers that are not normal for 0.
/// Requires: kMaxInt4Columns columns, split.
LOOM_SIMD_FROM(avx512_bf16, multiply_int4_rows_bfloat16,
               void(const Int4Rows<simd::BFloat16, simd::BFloat16>& product) noexcept);

}  // namespace loom::kernels::gemm
