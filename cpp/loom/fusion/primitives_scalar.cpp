// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/primitive_table.h"

namespace loom::fusion {

const Primitives& scalar_primitives() noexcept { return kPrimitives; }

}  // namespace loom::fusion
