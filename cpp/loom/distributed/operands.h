// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The tensors of an operation with other ranks: all on one device of loom, or all on the cpu. They
// are seen as memory. Thread: made by the caller's; read by the worker.

#include "loom/collectives/algorithms.h"
#include "loom/collectives/operation.h"
#include "loom/device/command_buffer.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace loom::distributed {

// Throw: c10::ValueError.
/// The one tensor of a list that may hold no others.
[[nodiscard]] const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors);

/// Where a worker finds the first element.
[[nodiscard]] const std::byte* address_of(const at::Tensor& tensor);

class Operands {
 public:
  explicit Operands(const char* name) : name_(name) {}

  // Elements that meet by their place in memory, whatever their index is.
  // Throw: c10::ValueError / Error for a tensor that is not dense, not strided, or on another
  // device than those before.
  [[nodiscard]] collectives::Source read(const at::Tensor& tensor);
  /// Every byte is written.
  [[nodiscard]] collectives::Target write(const at::Tensor& tensor);
  /// What is written depends on what it held, or it may not be written.
  [[nodiscard]] collectives::Target update(const at::Tensor& tensor);

  // Elements that meet by their index, in tensors of any strides: through copies, where memory is
  // in another order. Throw: as read().
  [[nodiscard]] collectives::Source read_in_order(const at::Tensor& tensor);
  /// Nor is memory overwritten that a call of read_in_order() before has read. Of the own-th one it
  /// is known that the operation may write in its place.
  [[nodiscard]] collectives::Target write_in_order(const at::Tensor& tensor,
                                                   std::optional<std::size_t> own = std::nullopt);
  struct Copy {
    at::Tensor to, from;
  };
  /// To be made once the operation has ended.
  [[nodiscard]] const std::vector<Copy>& copies() const noexcept { return copies_; }

  // What ranks must agree on.
  /// How elements are combined.
  void combine(const collectives::Combination& how) noexcept {
    combination_ = combination_ * 31 + collectives::number_of(how);
    if (!reduction_) reduction_ = how.reduction;
  }
  /// The dtype of a tensor that each rank has.
  void agree(c10::ScalarType dtype) noexcept {
    combination_ = combination_ * 31 + static_cast<std::uint64_t>(dtype) + 1;
    if (!dtype_) dtype_ = dtype;
  }
  void agree_on_root(int root) noexcept { root_ = root; }
  /// Says all of that.
  void describe(collectives::Operation& operation) const;

  /// Of the tensors; none before the first.
  [[nodiscard]] std::optional<c10::Device> device() const noexcept { return device_; }
  [[nodiscard]] const AccessList& accesses() const noexcept { return accesses_; }
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }
  /// Those whose values the operation needs, or all where it needs none.
  [[nodiscard]] const std::vector<at::Tensor>& inputs() const noexcept {
    return inputs_.empty() ? tensors_ : inputs_;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// A number for the order of their elements in memory, which ranks must agree on: 0 when all are
  /// contiguous.
  [[nodiscard]] std::uint64_t layout() const noexcept { return layout_; }

 private:
  void check(const at::Tensor& tensor) const;
  collectives::Target add(const at::Tensor& tensor, AccessKind kind);

  const char* name_;
  std::optional<c10::Device> device_;
  AccessList accesses_;
  std::vector<at::Tensor> tensors_, inputs_;
  std::vector<collectives::Source> read_in_order_;
  std::vector<Copy> copies_;
  std::size_t bytes_ = 0;
  std::uint64_t layout_ = 0, combination_ = 0;
  std::optional<c10::ScalarType> dtype_;
  std::optional<collectives::Reduction> reduction_;
  int root_ = -1;
};

}  // namespace loom::distributed
