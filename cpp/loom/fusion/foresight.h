// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What would become of an expression that is recorded, for those who can do without programs:
// generated code asks when it is generated. Thread: any.

#include "loom/base/export.h"
#include "loom/fusion/expression.h"

namespace loom::fusion {

/// Whether a program of this expression alone is machine code here, on operands where they lie:
/// none is gathered in another order first. Addresses are compared, nothing is read or written.
[[nodiscard]] LOOM_API bool runs_as_machine_code(const Expression& expression);

}  // namespace loom::fusion
