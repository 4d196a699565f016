// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a deferred operator (deferred.h) takes to the worker: its arguments with tensors replaced by
// what a command may hold of them, and where its results go.
// Thread: made on the caller, run once on the worker.

#include "loom/ops/cuts/deferred_split.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace loom::ops {

/// `length` places along a dimension, or all of a tensor.
struct Slice {
  std::int8_t dim = DeferredSplit::kWhole;
  std::int64_t begin = 0, length = 0;

  [[nodiscard]] at::Tensor of(const TensorRef& tensor) const {
    return dim == DeferredSplit::kWhole ? tensor.alias() : tensor.alias_slice(dim, begin, length);
  }
};

/// A tensor among the arguments.
struct DeferredOperand {
  TensorRef ref;
  bool writes = false;
  bool requires_grad = false;  // some kernels ask, and return more if so

  DeferredOperand(const at::Tensor& tensor, bool written);
  [[nodiscard]] at::Tensor alias(const Slice& slice = {}) const;
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
  /// `slice`: of an argument that is a tensor.
  [[nodiscard]] c10::IValue on_worker(const Slice& slice) const;
};

class DeferredCommand {
 public:
  /// `results`: where new results go; those that are arguments are left out. With `as_outputs` they
  /// are the operator's last arguments, otherwise what it returns is copied into them. `split`:
  /// how it is cut into blocks, if it is.
  DeferredCommand(c10::OperatorHandle op, std::vector<DeferredArgument> arguments,
                  std::vector<TensorRef> results, bool as_outputs,
                  std::optional<DeferredSplit> split)
      : op_(std::move(op)),
        arguments_(std::move(arguments)),
        results_(std::move(results)),
        as_outputs_(as_outputs),
        split_(std::move(split)) {}

  /// The caller has been warned so.
  void leave_out_warning(std::string text) { warnings_given_.push_back(std::move(text)); }

  void operator()();
  void accesses(AccessList& list) const;

 private:
  /// Block [begin, begin + length) of the split's items, or everything.
  void run(std::int64_t begin, std::int64_t length) const;
  void call(torch::jit::Stack& stack) const;
  /// The blocks of the new results.
  [[nodiscard]] std::vector<at::Tensor> places_of(std::int64_t begin, std::int64_t length) const;
  /// call() for an operator that returns new tensors: the largest is made in its place, if its
  /// allocation is recognised; none of the others lies there.
  void call_for_results(torch::jit::Stack& stack, const std::vector<at::Tensor>& places) const;
  void copy_result(std::size_t index, const at::Tensor& to, const at::Tensor& from) const;
  [[nodiscard]] Slice of_argument(std::size_t i, std::int64_t begin, std::int64_t length) const {
    return split_ ? Slice{split_->arguments[i], begin, length} : Slice{};
  }
  [[nodiscard]] Slice of_result(std::size_t i, std::int64_t begin, std::int64_t length) const {
    return split_ ? Slice{split_->results[i], begin, length} : Slice{};
  }

  c10::OperatorHandle op_;
  std::vector<DeferredArgument> arguments_;
  std::vector<TensorRef> results_;
  bool as_outputs_;
  std::optional<DeferredSplit> split_;
  std::vector<std::string> warnings_given_;
};

}  // namespace loom::ops
