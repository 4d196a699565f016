// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The instruction sets that kernels are compiled for. Thread: any.

#include "loom/base/export.h"

namespace loom {

enum class SimdLevel { kScalar, kAvx2, kAvx512 };

/// "scalar", "AVX2" or "AVX-512".
[[nodiscard]] LOOM_API const char* to_string(SimdLevel level) noexcept;

/// The widest that the processor has. kAvx2 means AVX2, FMA, F16C and BMI2; kAvx512 those and F,
/// BW, DQ and VL.
[[nodiscard]] LOOM_API SimdLevel processor_simd_level() noexcept;

/// The one that kernels run with: the processor's, unless LOOM_SIMD lowers it.
[[nodiscard]] LOOM_API SimdLevel simd_level() noexcept;

}  // namespace loom
