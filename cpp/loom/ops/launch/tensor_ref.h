// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a command knows of a tensor: where it is and how it is laid out, never the storage itself.
// Like the arguments of a CUDA launch it owns no device memory: stream order keeps the block valid
// until the command has run. A zero-dimensional CPU tensor is carried by value, so that the host
// may change or free it right after the launch. Other host tensors come in through of_host(), and
// only copies use that.
// Thread: made on the caller's thread, read by the worker and the cores (const members only).

#include "loom/device/command_buffer.h"
#include "loom/kernels/tensor_view.h"

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace loom::ops {

/// Sizes, strides (elements) and dtype over memory that somebody else keeps valid.
struct TensorView {
  std::byte* data = nullptr;  ///< host-accessible address of the first element
  c10::IntArrayRef sizes = {}, strides = {};
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool conj = false, neg = false, wrapped_number = false;

  /// As kernels see it that know elements by their size.
  [[nodiscard]] kernels::TensorView elements() const noexcept {
    return {data,
            {sizes.data(), sizes.size()},
            {strides.data(), strides.size()},
            c10::elementSize(dtype)};
  }
};

/// Gives a lazily cloned storage its own memory, on its own device, before somebody writes it.
void materialize(c10::StorageImpl& storage);

/// A CPU tensor over the memory of `view`: no copy, no ownership. About 75 ns.
[[nodiscard]] at::Tensor make_alias(const TensorView& view);

/// Kernels may change what their output is beside its values: those that solve for the conjugate
/// set the conjugate bit instead of making a pass, others give it strides of their own. An alias's
/// form is not its device tensor's, so the values are put where they belong after all. Requires:
/// `alias` outlives the object.
class KeptForm {
 public:
  explicit KeptForm(const at::Tensor& alias)
      : alias_(alias),
        conj_(alias.defined() && alias.is_conj()),
        neg_(alias.defined() && alias.is_neg()) {
    if (alias.defined()) strides_ = alias.strides();
  }
  /// Gives the alias the form that it had, and its memory the values that it then means.
  void restore() const {
    if (!alias_.defined()) return;
    if (alias_.is_conj() != conj_ || alias_.is_neg() != neg_ || alias_.strides() != strides_)
        [[unlikely]] {
      make_pass();
    }
  }

 private:
  void make_pass() const;

  const at::Tensor& alias_;
  const bool conj_, neg_;
  at::DimVector strides_;
};

class TensorRef {
 public:
  /// An absent optional tensor: alias() is an undefined tensor.
  TensorRef() = default;

  /// Requires: a strided tensor on loom, or a zero-dimensional one on cpu; undefined is allowed.
  /// `writes`: the kernel will write it, so a lazily cloned storage gets its own memory now.
  explicit TensorRef(const at::Tensor& tensor, bool writes = false);

  /// A strided host tensor of any shape. Requires: whoever launches keeps its memory valid until
  /// the command has run.
  [[nodiscard]] static TensorRef of_host(const at::Tensor& tensor, bool writes = false);

  TensorRef(TensorRef&&) noexcept = default;
  TensorRef& operator=(TensorRef&&) noexcept = default;
  TensorRef(const TensorRef&) = delete;
  TensorRef& operator=(const TensorRef&) = delete;

  [[nodiscard]] bool defined() const noexcept { return dtype_ != c10::ScalarType::Undefined; }
  /// True for a value that was copied out of a CPU scalar.
  [[nodiscard]] bool immediate() const noexcept { return immediate_; }
  [[nodiscard]] std::int64_t dim() const noexcept { return ndim_; }
  [[nodiscard]] std::int64_t numel() const noexcept { return numel_; }
  [[nodiscard]] c10::ScalarType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t itemsize() const noexcept { return c10::elementSize(dtype_); }
  [[nodiscard]] c10::IntArrayRef sizes() const noexcept {
    return {geometry(), static_cast<std::size_t>(ndim_)};
  }
  [[nodiscard]] c10::IntArrayRef strides() const noexcept {
    return {geometry() + ndim_, static_cast<std::size_t>(ndim_)};
  }
  [[nodiscard]] bool conj() const noexcept { return conj_; }
  [[nodiscard]] bool neg() const noexcept { return neg_; }
  [[nodiscard]] bool is_contiguous() const noexcept { return contiguous_; }
  /// True when the elements fill a gapless range of memory in some order of dimensions.
  [[nodiscard]] bool is_dense() const noexcept { return dense_; }
  /// Host-accessible address of the first element.
  [[nodiscard]] std::byte* data() const noexcept {
    return immediate_ ? const_cast<std::byte*>(value_) : data_;
  }
  [[nodiscard]] TensorView view() const noexcept;
  /// The whole tensor as a CPU tensor; undefined if this is.
  [[nodiscard]] at::Tensor alias() const;
  /// Elements [begin, begin + length) of dimension `dim` as a CPU tensor.
  [[nodiscard]] at::Tensor alias_slice(std::int64_t dim, std::int64_t begin,
                                       std::int64_t length) const;
  /// Elements [begin, begin + length) in memory order as a flat CPU tensor. Requires: is_dense().
  [[nodiscard]] at::Tensor alias_flat(std::int64_t begin, std::int64_t length) const;

  /// The same geometry in other host-accessible memory. Requires: defined, not immediate.
  [[nodiscard]] TensorRef at(std::byte* data) const;

  /// Appends the memory range that the tensor spans. Of a tensor with gaps kReplace is kUpdate.
  void append_access(AccessList& list, AccessKind kind) const;
  /// For the host, which has waited for the commands that write the tensor.
  /// Throws: why its values failed, if they did (failed_memory.h).
  void check_values() const;

 private:
  static constexpr int kInlineDims = 5;
  static constexpr std::size_t kValueBytes = 16;  // complex128, the largest dtype

  void set_geometry(const c10::TensorImpl& impl);
  [[nodiscard]] const std::int64_t* geometry() const noexcept {
    return heap_ ? heap_.get() : inline_;
  }

  std::byte* data_ = nullptr;
  std::int64_t numel_ = 0;
  std::unique_ptr<std::int64_t[]> heap_;  // sizes then strides, beyond kInlineDims dimensions
  std::int32_t ndim_ = 0;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  bool immediate_ = false, contiguous_ = false, dense_ = false;
  bool conj_ = false, neg_ = false, wrapped_number_ = false;
  union {
    std::int64_t inline_[2 * kInlineDims];  // sizes then strides
    alignas(16) std::byte value_[kValueBytes];
  };
};

}  // namespace loom::ops
