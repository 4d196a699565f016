// SPDX-License-Identifier: BSD-3-Clause
// Builds that have no assembler for the processor.
#include "loom/fusion/jit/compile.h"

namespace loom::fusion {
namespace jit {

SimdLevel widest_level() noexcept { return SimdLevel::kScalar; }

std::shared_ptr<const Kernel> compile_for(SimdLevel, const Body&) { return nullptr; }

}  // namespace jit

std::shared_ptr<const Kernel> compile(const Body&) { return nullptr; }

}  // namespace loom::fusion
