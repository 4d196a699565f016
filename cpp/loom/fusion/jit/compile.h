// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What compile() (kernel.h) does, for an instruction set of the caller's choice.
// Thread: any.

#include "loom/fusion/kernel.h"
#include "loom/fusion/vector_math.h"

#include <memory>

namespace loom::fusion::jit {

/// The widest instruction set that the processor has and machine code can be made for.
[[nodiscard]] SimdLevel widest_level() noexcept;

/// Machine code of `level`; null as compile(), and for functions if `level` is not vector_level().
/// Requires: a valid body; the processor has `level`.
[[nodiscard]] std::shared_ptr<const Kernel> compile_for(SimdLevel level, const Body& body);

}  // namespace loom::fusion::jit
