// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a deferred operator (deferred.h) takes to the worker: its arguments with tensors replaced by
// what a command may hold of them, and where its results go.
// Thread: made on the caller, run once on the worker.

#include "loom/ops/tensor_ref.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <string>
#include <utility>
#include <vector>

namespace loom::ops {

/// A tensor among the arguments.
struct DeferredOperand {
  TensorRef ref;
  bool writes = false;
  bool requires_grad = false;  // some kernels ask, and return more if so

  DeferredOperand(const at::Tensor& tensor, bool written);
  [[nodiscard]] at::Tensor alias() const;
};

/// An argument as it was given, or the operands that it consists of.
struct DeferredArgument {
  enum class Kind { kValue, kTensor, kTensorList, kOptionalTensorList };

  Kind kind = Kind::kValue;
  bool replaces = false;  ///< what a written operand held does not matter
  c10::IValue value;
  std::vector<DeferredOperand> operands;

  DeferredArgument(const c10::IValue& given, bool written, bool replaced);
  [[nodiscard]] bool is_written() const noexcept {
    return kind == Kind::kTensor && operands[0].writes;
  }
  [[nodiscard]] c10::IValue on_worker() const;
};

class DeferredCommand {
 public:
  /// `results`: where new results go; those that are arguments are left out. With `as_outputs` they
  /// are the operator's last arguments, otherwise what it returns is copied into them.
  DeferredCommand(c10::OperatorHandle op, std::vector<DeferredArgument> arguments,
                  std::vector<TensorRef> results, bool as_outputs)
      : op_(std::move(op)),
        arguments_(std::move(arguments)),
        results_(std::move(results)),
        as_outputs_(as_outputs) {}

  /// The caller has been warned so.
  void leave_out_warning(std::string text) { warnings_given_.push_back(std::move(text)); }

  void operator()();
  void accesses(AccessList& list) const;

 private:
  void call(torch::jit::Stack& stack) const;
  void copy_results(const torch::jit::Stack& stack) const;

  c10::OperatorHandle op_;
  std::vector<DeferredArgument> arguments_;
  std::vector<TensorRef> results_;
  bool as_outputs_;
  std::vector<std::string> warnings_given_;
};

}  // namespace loom::ops
