// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The product of a state and a panel of packed weights where a batch has one sample: what a step
// does then is read weights, and a call of a block kernel for so little takes as long as that.
// Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::recurrent {

/// to[j] = the sum of row[k] * panel[k * columns + j], in an order that depends on the sizes and
/// the instruction set. Requires: 48 or 64 columns, as group_sums() are.
LOOM_SIMD_VERSIONS(multiply_row, void(const float* row, std::int64_t inner, const float* panel,
                                      std::int64_t columns, float* to) noexcept);

}  // namespace loom::kernels::recurrent
