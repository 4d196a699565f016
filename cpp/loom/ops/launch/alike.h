// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The common case of pointwise operators, told apart in a few comparisons: operands that are all
// alike, so that the result is like them too, and ATen's shape inference, which is made for all
// cases, has nothing to add. Thread: any.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstddef>
#include <cstdint>

namespace loom::ops {

/// What all operands are like; null if they are not.
class Alike {
 public:
  /// A contiguous floating-point tensor on loom, or a Python number.
  bool add(const at::Tensor& tensor) {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (!tensor.defined() || impl->key_set().has_any(kViews)) return false;
    if (impl->device_type() != c10::kPrivateUse1) {
      return like_ != nullptr && impl->is_wrapped_number() && !tensor.is_complex() &&
             tensor.scalar_type() != c10::ScalarType::Bool && has_usual_strides();
    }
    if (!tensor.is_floating_point() || !impl->is_contiguous()) return false;
    if (like_ == nullptr) {
      like_ = &tensor;
      // A number would decide the dtype beside it.
      return impl->dim() > 0;
    }
    return impl->dtype() == like_->dtype() && impl->device() == like_->device() &&
           impl->sizes() == like_->sizes();
  }
  bool add(const at::Scalar& scalar) { return !scalar.isComplex() && !scalar.isBoolean(); }
  template <class T>
  bool add(const T&) {
    return false;
  }

  [[nodiscard]] const at::Tensor* like() const noexcept { return like_; }

 private:
  /// Beside a number, the result of a contiguous tensor takes over even those strides that have no
  /// meaning, of dimensions of size 1.
  [[nodiscard]] bool has_usual_strides() const noexcept {
    const c10::IntArrayRef sizes = like_->sizes(), strides = like_->strides();
    std::int64_t usual = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (strides[d] != usual) return false;
      usual *= sizes[d];
    }
    return true;
  }

  static constexpr c10::DispatchKeySet kViews{
      c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor};

  const at::Tensor* like_ = nullptr;
};

template <class... Operand>
const at::Tensor* find_alike(const Operand&... operands) {
  Alike alike;
  return (alike.add(operands) && ...) ? alike.like() : nullptr;
}

/// True if `operand` is the very place of `self` or shares no memory with it, so that writing
/// `self` element by element changes none that is still to be read.
inline bool keeps(const at::Tensor& self, const at::Tensor& operand) {
  c10::TensorImpl* const to = self.unsafeGetTensorImpl();
  c10::TensorImpl* const from = operand.unsafeGetTensorImpl();
  if (to == from || !to->unsafe_storage().is_alias_of(from->unsafe_storage())) [[likely]]
    return true;
  return at::get_overlap_status(to, from) != at::MemOverlapStatus::Partial;
}
template <class T>
bool keeps(const at::Tensor&, const T&) {
  return true;
}

/// True if `self`, the first operand, may be written in place without further checks.
template <class... Operand>
bool is_alike_in_place(const at::Tensor& self, const Operand&... operands) {
  return find_alike(operands...) != nullptr && (keeps(self, operands) && ...);
}

}  // namespace loom::ops
