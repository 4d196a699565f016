// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The tensors of a boxed call: arguments that are tensors, and those in lists. Optional ones in
// lists (`Tensor?[]`, the indices of x[i, j]) reach boxed kernels in three forms: as eager calls
// make them, as generic lists with an element type of their own from TorchScript, and as plain
// tensor lists from programs saved long ago. Thread: any.

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

/// Calls visit(tensor) for an argument that is a tensor, and for the tensors of one that is a list.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) return visit(value.toTensor());
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) return;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isTensor()) visit(element.toTensor());
  }
}

/// The argument with map(tensor) in place of each tensor; what is no tensor stays as it is.
/// Requires: a form of eager calls.
template <class Map>
[[nodiscard]] c10::IValue map_tensors(const c10::IValue& value, Map&& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorList()) list.push_back(map(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      list.push_back(tensor ? std::optional<at::Tensor>(map(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

}  // namespace loom::ops
