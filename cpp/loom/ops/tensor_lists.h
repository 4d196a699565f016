// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Optional tensors in lists (`Tensor?[]`, the indices of x[i, j]) reach boxed kernels in three
// forms: as eager calls make them, as generic lists with an element type of their own from
// TorchScript, and as plain tensor lists from programs saved long ago. Thread: any.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>

namespace loom::ops {

/// The elements of a `Tensor?[]` in whichever form.
[[nodiscard]] c10::List<std::optional<at::Tensor>> optional_tensors(const c10::IValue& list);

/// Gives every `Tensor?[]` among the arguments on top of `stack` the form of eager calls, the only
/// one that IValue::isOptionalTensorList() knows.
void settle_tensor_lists(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace loom::ops
