// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The functions of one vector that are too long to be emitted in line (exp, erf, ...). Interpreter
// and machine code call the same ones, so that both give the same bits.
// Thread: any.

#include "loom/fusion/op.h"

namespace loom::fusion {

/// The instruction sets that kernels are made for, chosen once for the process.
enum class SimdLevel { kScalar, kAvx2, kAvx512 };
/// The widest that the processor and this build have.
[[nodiscard]] SimdLevel simd_level() noexcept;

/// The function that computes `op` for kFloat or kDouble on one full vector of simd_level(): it
/// takes and returns vectors in registers by the System V convention (__m512 f(__m512 a) or
/// f(__m512 a, __m512 b), all vector registers are lost), and is safe for any lane values. Null for
/// operations that have none (those that are one or two machine instructions), and where this build
/// has no SIMD.
using VectorFunction = void (*)();
[[nodiscard]] VectorFunction vector_function(Op op, Type type) noexcept;

}  // namespace loom::fusion
