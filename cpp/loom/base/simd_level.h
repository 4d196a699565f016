// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The instruction sets that kernels are compiled for. Thread: any.

#include "loom/base/export.h"

namespace loom {

/// From the narrowest to the widest; kNeon is ARM's, the wider ones are those of x86, each of which
/// has those before it. Most kernels have a version for the first four, a few begin later:
/// simd/versions.h.
enum class SimdLevel { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// "scalar", "NEON", "AVX2", "AVX-512", "AVX-512 with BF16" or "AMX".
[[nodiscard]] LOOM_API const char* to_string(SimdLevel level) noexcept;

/// The last one that the processor has. Every 64-bit ARM has kNeon; kAvx2 means AVX2, FMA, F16C and
/// BMI2; kAvx512 those and F, BW, DQ and VL; kAmx products of bfloat16, by a system that saves the
/// tiles. Whether this process may use them is another question: kernels/gemm/matrix_unit.h.
[[nodiscard]] LOOM_API SimdLevel processor_simd_level() noexcept;

/// Whether the processor runs what is compiled for `level`.
[[nodiscard]] LOOM_API bool processor_has(SimdLevel level) noexcept;

/// The one that kernels run with: the widest that the processor has and LOOM_SIMD allows.
[[nodiscard]] LOOM_API SimdLevel simd_level() noexcept;

/// The one of the first four that has its vectors.
[[nodiscard]] constexpr SimdLevel vectors_of(SimdLevel level) noexcept {
  return level < SimdLevel::kAvx512 ? level : SimdLevel::kAvx512;
}

}  // namespace loom
