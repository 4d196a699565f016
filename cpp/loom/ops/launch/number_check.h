// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Numbers that become elements: throws PyTorch's messages for a dtype that the kernel does not
// know, and for a number that the dtype cannot hold, before anything is launched. Thread: any.

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

namespace loom::ops {

/// As fill_'s kernel.
void check_filling(c10::ScalarType dtype, const c10::Scalar& number);
/// As masked_fill_'s kernel.
void check_masked_filling(c10::ScalarType dtype, const c10::Scalar& number);

/// Bits and fractions of bytes, which kernels move at most: ATen's copy knows few of them.
[[nodiscard]] inline bool is_memory_only(c10::ScalarType dtype) noexcept {
  using enum c10::ScalarType;
  return (dtype >= Bits1x8 && dtype <= Bits16) || (dtype >= UInt1 && dtype <= Int7) ||
         dtype == Float4_e2m1fn_x2;
}

}  // namespace loom::ops
