// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The tensors of an operation with other ranks: all on one device of loom, or all on the cpu. They
// are seen as memory, so they must be dense. Thread: made by the caller's; read by the worker.

#include "loom/collectives/algorithms.h"
#include "loom/device/command_buffer.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace loom::distributed {

// Throw: c10::ValueError.
/// The one tensor of a list that may hold no others.
[[nodiscard]] const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors);
void check_contiguous(const char* name, const at::Tensor& tensor);

class Operands {
 public:
  explicit Operands(const char* name) : name_(name) {}

  // Throw: c10::ValueError / Error for a tensor that is not dense, not strided, or on another
  // device than those before.
  [[nodiscard]] collectives::Source read(const at::Tensor& tensor);
  /// Every byte is written.
  [[nodiscard]] collectives::Target write(const at::Tensor& tensor);
  /// What is written depends on what it held, or it may not be written.
  [[nodiscard]] collectives::Target update(const at::Tensor& tensor);

  /// Of the tensors; none before the first.
  [[nodiscard]] std::optional<c10::Device> device() const noexcept { return device_; }
  [[nodiscard]] const AccessList& accesses() const noexcept { return accesses_; }
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }
  /// Those whose values the operation needs, or all where it needs none.
  [[nodiscard]] std::vector<at::Tensor> inputs() const {
    return inputs_.empty() ? tensors_ : inputs_;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// A number for the order of their elements in memory, which ranks must agree on: 0 when all are
  /// contiguous.
  [[nodiscard]] std::uint64_t layout() const noexcept { return layout_; }

 private:
  collectives::Target add(const at::Tensor& tensor, AccessKind kind);

  const char* name_;
  std::optional<c10::Device> device_;
  AccessList accesses_;
  std::vector<at::Tensor> tensors_, inputs_;
  std::size_t bytes_ = 0;
  std::uint64_t layout_ = 0;
};

}  // namespace loom::distributed
