// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/deferred_command.h"

#include "loom/device/queue.h"
#include "loom/ops/launch/device_output_scope.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/meta/inference_warnings.h"

#include <ATen/ops/copy_native.h>

#include <algorithm>
#include <optional>

namespace loom::ops {

DeferredOperand::DeferredOperand(const at::Tensor& tensor, bool written)
    : ref(tensor, written),
      writes(written),
      requires_grad(tensor.defined() && tensor.requires_grad()) {}

at::Tensor DeferredOperand::alias(const Slice& slice) const {
  at::Tensor tensor = slice.of(ref);
  if (requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

DeferredArgument::DeferredArgument(const c10::IValue& given, bool written, bool replaced)
    : replaces(replaced) {
  if (given.isTensor()) {
    kind = Kind::kTensor;
    operands.emplace_back(given.toTensor(), written);
  } else if (given.isTensorList()) {
    kind = Kind::kTensorList;
    for (const at::Tensor& tensor : given.toTensorList()) operands.emplace_back(tensor, written);
  } else if (given.isOptionalTensorList()) {
    kind = Kind::kOptionalTensorList;
    for (const std::optional<at::Tensor>& tensor : given.toOptionalTensorList()) {
      operands.emplace_back(tensor.value_or(at::Tensor()), written);
    }
  } else {
    value = given;
  }
}

c10::IValue DeferredArgument::on_worker(const Slice& slice) const {
  switch (kind) {
    case Kind::kValue:
      break;
    case Kind::kTensor:
      return operands[0].alias(slice);
    case Kind::kTensorList: {
      c10::List<at::Tensor> list;
      for (const DeferredOperand& operand : operands) list.push_back(operand.alias());
      return list;
    }
    case Kind::kOptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const DeferredOperand& operand : operands) {
        if (!operand.ref.defined()) {
          list.push_back(std::nullopt);
        } else {
          const bool cut = slice.dim != DeferredSplit::kWhole && operand.ref.sizes()[slice.dim] > 1;
          list.push_back(operand.alias(cut ? slice : Slice{}));
        }
      }
      return list;
    }
  }
  return value;
}

void DeferredCommand::operator()() {
  if (!split_) return run(0, 0);
  Queue& queue = *Queue::current();
  Grid grid(queue.cores(), queue.id().priority);
  try {
    grid.run(split_->blocks(), [&](std::int64_t index) {
      const std::int64_t begin = index * split_->block;
      run(begin, std::min(split_->block, split_->items - begin));
    });
  } catch (...) {
    // An error that names an element of the batch has to name that of the call, not of the block.
    const bool updates =
        std::any_of(arguments_.begin(), arguments_.end(), [](const DeferredArgument& argument) {
          return argument.is_written() && !argument.replaces;
        });
    if (updates) throw;
    split_.reset();
    run(0, 0);
  }
}

void DeferredCommand::run(std::int64_t begin, std::int64_t length) const {
  torch::jit::Stack stack;
  stack.reserve(arguments_.size() + results_.size());
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    stack.push_back(arguments_[i].on_worker(of_argument(i, begin, length)));
    if (arguments_[i].is_written()) outputs.push_back(stack.back().toTensor());
  }
  if (as_outputs_) {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const at::Tensor& output = outputs.emplace_back(of_result(i, begin, length).of(results_[i]));
      stack.emplace_back(output);
    }
  }
  const std::vector<KeptForm> forms(outputs.begin(), outputs.end());
  const bool returns = !as_outputs_ && !results_.empty();
  const std::vector<at::Tensor> places = returns ? places_of(begin, length) : outputs;
  if (returns) {
    call_for_results(stack, places);
  } else {
    call(stack);
  }
  for (const KeptForm& kept : forms) kept.restore();
  if (!returns) return;
  for (std::size_t i = 0; i < places.size(); ++i) copy_result(i, places[i], stack[i].toTensor());
}

std::vector<at::Tensor> DeferredCommand::places_of(std::int64_t begin, std::int64_t length) const {
  std::vector<at::Tensor> places;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    places.push_back(of_result(i, begin, length).of(results_[i]));
  }
  return places;
}

void DeferredCommand::call_for_results(torch::jit::Stack& stack,
                                       const std::vector<at::Tensor>& places) const {
  const auto bytes = [](const at::Tensor& place) {
    return place.defined() && place.is_non_overlapping_and_dense() ? place.nbytes() : 0;
  };
  const auto largest = std::ranges::max_element(places, {}, bytes);
  void* const memory = bytes(*largest) == 0 ? nullptr : largest->mutable_data_ptr();
  {
    const PlacedAllocation placed(memory, bytes(*largest));
    call(stack);
  }
  // Another result, of as many bytes, may have been the one that was made there.
  for (std::size_t i = 0; memory != nullptr && i < places.size(); ++i) {
    const at::Tensor& made = stack[i].toTensor();
    const bool strays = &places[i] != &*largest && made.defined() && made.has_storage() &&
                        made.storage().data() == memory;
    if (strays) stack[i] = made.clone();
  }
}

void DeferredCommand::call(torch::jit::Stack& stack) const {
  if (warnings_given_.empty()) return op_.callBoxed(stack);
  const WithoutWarnings given(warnings_given_);
  op_.callBoxed(stack);
}

void DeferredCommand::copy_result(std::size_t index, const at::Tensor& to,
                                  const at::Tensor& from) const {
  if (!to.defined() && !from.defined()) return;
  TORCH_CHECK(to.defined() && from.defined() && from.sizes() == to.sizes() &&
                  from.scalar_type() == to.scalar_type(),
              op_.operator_name().name, ": expected result ", index, " to be ",
              to.defined() ? to.toString() : "absent", " of sizes ",
              to.defined() ? to.sizes() : c10::IntArrayRef(), " as inferred, got ", from.toString(),
              " of sizes ", from.defined() ? from.sizes() : c10::IntArrayRef());
  at::Tensor place = to;
  if (from.numel() == 0 || from.storage().data() != place.storage().data()) {
    at::native::copy_(place, from);
    return;
  }
  const bool alike = from.strides() == to.strides() && from.data_ptr() == to.data_ptr() &&
                     !from.is_conj() && !from.is_neg();
  if (!alike) at::native::copy_(place, from.clone());  // made there, but laid out otherwise
}

void DeferredCommand::accesses(AccessList& list) const {
  for (const DeferredArgument& argument : arguments_) {
    for (const DeferredOperand& operand : argument.operands) {
      operand.ref.append_access(list, !operand.writes     ? AccessKind::kRead
                                      : argument.replaces ? AccessKind::kReplace
                                                          : AccessKind::kUpdate);
    }
  }
  for (const TensorRef& result : results_) result.append_access(list, AccessKind::kReplace);
}

}  // namespace loom::ops
