// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// All of a call that a shape inference, or a trial (trial.h), may look at: the operator, of each
// tensor its sizes, strides, dtype and bits, the values of everything else, and the settings of the
// thread and the process that inferences ask for. Keys are compared whole, so that calls with equal
// keys have results that look alike; the hash only finds them. Where in its storage a tensor begins
// is no part of it: that decides nothing but which views are possible, and no view is deferred.
// Thread: a key belongs to one, or is not changed any more.

#include "loom/base/export.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace loom::ops {

class CallKey {
 public:
  /// Nothing for a call of which no inference is to be kept: with symbolic sizes, tensors of Python
  /// classes, generators and other objects, very many tensors; or if warnings of nondeterministic
  /// kernels are asked for, which inferences give, too.
  [[nodiscard]] LOOM_API static std::optional<CallKey> of(const c10::OperatorHandle& op,
                                                          c10::ArrayRef<c10::IValue> arguments);

  [[nodiscard]] bool operator==(const CallKey& other) const noexcept {
    return hash_ == other.hash_ && words_ == other.words_;
  }
  [[nodiscard]] std::size_t hash() const noexcept { return hash_; }
  /// How much there is to keep.
  [[nodiscard]] std::size_t words() const noexcept { return words_.size(); }

 private:
  CallKey() = default;

  // Each value begins with a word that says of what kind it is and how many words follow, so that
  // no two sequences of arguments have the same words.
  enum class Kind : std::uint8_t {
    kNone,
    kUndefined,
    kTensor,
    kInt,
    kBool,
    kDouble,
    kComplex,
    kString,
    kList,
  };

  bool add(const c10::IValue& value);
  bool add(const at::Tensor& tensor);
  bool add_number(const at::Tensor& number);
  void add_bytes(const void* bytes, std::size_t count);
  void begin(Kind kind, std::uint64_t detail = 0);
  void finish();

  c10::SmallVector<std::uint64_t, 40> words_;  // four matrices and some numbers
  std::size_t hash_ = 0;
};

}  // namespace loom::ops
