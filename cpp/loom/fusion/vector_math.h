// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The functions of one vector that are too long to be emitted in line (exp, erf, ...). Interpreter
// and machine code call the same ones, so that both give the same bits.
// Thread: any.

#include "loom/base/simd_level.h"
#include "loom/fusion/op.h"

namespace loom::fusion {

/// simd_level(), or kScalar in a build that has no such functions (one without torch, which has
/// Sleef).
[[nodiscard]] SimdLevel vector_level() noexcept;

/// The function that computes `op` for kFloat or kDouble on one full vector of vector_level(): it
/// takes and returns vectors in registers by the System V convention (__m512 f(__m512 a) or
/// f(__m512 a, __m512 b), all vector registers are lost), and is safe for any lane values. Null for
/// operations that have none (those that are one or two machine instructions), and where this build
/// has no SIMD.
using VectorFunction = void (*)();
[[nodiscard]] VectorFunction vector_function(Op op, Type type) noexcept;

}  // namespace loom::fusion
