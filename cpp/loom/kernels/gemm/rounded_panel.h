// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A product of bfloat16 whose sums never leave the registers before they are rounded, for a panel
// of the right operand. oneDNN's block kernel stores them as float32, to be read again, which takes
// a tenth of the time of few inner elements. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

/// to = scale * left x panel + addend_scale * addend. Strides are in elements from row to row.
struct RoundedPanel {
  std::int64_t rows, columns, inner;  ///< at most kPanelColumns columns
  const simd::BFloat16* left;
  std::int64_t left_ld;
  const simd::BFloat16*
      panel;  ///< rows of kPanelColumns pairs; of an odd number the last has zeros
  const simd::BFloat16* addend;  ///< null: none
  std::int64_t addend_ld;
  simd::BFloat16* to;
  std::int64_t ld;
  float scale = 1, addend_scale = 1;
};
inline constexpr std::int64_t kPanelColumns = 64;

LOOM_SIMD_FROM(avx512_bf16, multiply_rounded, void(const RoundedPanel& product) noexcept);

}  // namespace loom::kernels::gemm
