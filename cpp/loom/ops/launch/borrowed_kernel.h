// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Some kernels that ATen registers for the CPU or for another accelerator name no device: they only
// read metadata, or call further operators. They are right for loom as they are. Thread: any.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace loom::ops {

/// Runs the kernel that the operator has for `kKey` on the same arguments.
template <c10::DispatchKey kKey>
void borrowed_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(kKey, *stack);
}

}  // namespace loom::ops
