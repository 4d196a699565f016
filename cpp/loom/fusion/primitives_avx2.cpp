// SPDX-License-Identifier: BSD-3-Clause
#define LOOM_SIMD_AVX2
#include "loom/fusion/primitive_table.h"
#include "loom/fusion/simd_functions.h"

namespace loom::fusion {

const Primitives& avx2_primitives() noexcept { return kPrimitives; }

}  // namespace loom::fusion
