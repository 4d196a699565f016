// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether products of bfloat16 run on the processor's matrix unit (AMX), which is oneDNN's matter:
// its block kernel and convolutions do, where they may. Thread: any.

#include "loom/base/simd_level.h"

namespace loom::kernels::gemm {

/// True if they are far faster than those of float32, not at most twice as fast: transforms that
/// save products, but have to be in float32, then lose more than they save. Asks the processor and,
/// as oneDNN does, the system for permission to use the unit; LOOM_SIMD and ONEDNN_MAX_CPU_ISA
/// narrow it. The answer is that of the first call.
[[nodiscard]] bool bfloat16_is_far_faster() noexcept;

/// The part of it that the environment decides: `onednn_isa` is ONEDNN_MAX_CPU_ISA, or null.
[[nodiscard]] bool allows_matrix_unit(SimdLevel level, const char* onednn_isa) noexcept;

}  // namespace loom::kernels::gemm
