// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/tensor_lists.h"

#include <ATen/core/jit_type.h>

namespace loom::ops {
namespace {

bool holds_optional_tensors(const c10::Argument& argument) {
  const auto list = argument.type()->cast<c10::ListType>();
  if (!list) return false;
  const auto optional = list->getElementType()->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::TensorType;
}

}  // namespace

c10::List<std::optional<at::Tensor>> optional_tensors(const c10::IValue& list) {
  if (list.isOptionalTensorList()) return list.toOptionalTensorList();
  c10::List<std::optional<at::Tensor>> tensors;
  for (const c10::IValue& element : list.toListRef()) {
    tensors.push_back(element.toOptional<at::Tensor>());
  }
  return tensors;
}

void settle_tensor_lists(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack.size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    if (!value.isList() || value.isOptionalTensorList()) continue;
    if (holds_optional_tensors(arguments[i])) value = optional_tensors(value);
  }
}

}  // namespace loom::ops
