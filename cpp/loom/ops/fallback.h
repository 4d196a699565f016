// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What runs when an operator has no kernel of its own. Thread: any.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace loom::ops {

/// Defers the operator whose arguments are on top of `stack` (deferred.h); if that cannot be done,
/// waits for the streams of its operands, runs it on the host over the same memory, and counts that
/// (fallback_report.h). Leaves the results on the stack.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace loom::ops
