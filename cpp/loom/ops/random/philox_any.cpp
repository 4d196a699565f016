// SPDX-License-Identifier: BSD-3-Clause
// Stands in for philox_x86.cpp on other processors.
#include "loom/ops/random/philox.h"

namespace loom::ops::random::detail {

std::vector<PhiloxFunction> philox_functions() { return {philox_portable}; }

}  // namespace loom::ops::random::detail
