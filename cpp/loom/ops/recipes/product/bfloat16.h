// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Numbers of bfloat16 as kernels see them, which know no torch. Thread: any.

#include "loom/simd/half.h"

#include <c10/util/BFloat16.h>

namespace loom::ops {

inline simd::BFloat16* stored(c10::BFloat16* numbers) noexcept {
  return reinterpret_cast<simd::BFloat16*>(numbers);
}
inline const simd::BFloat16* stored(const c10::BFloat16* numbers) noexcept {
  return reinterpret_cast<const simd::BFloat16*>(numbers);
}

}  // namespace loom::ops
