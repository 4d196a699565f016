// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs a structured operator's meta() on device tensors: StructuredMeta gives the shape inference
// that ATen ships a place to put its outputs, which are new device tensors, the tensor that is
// changed in place, or the tensors given as out=. Thread: any.

#include "loom/base/export.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/DimVector.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace loom::ops {

enum class OutputKind { kNew, kInPlace, kGiven };

/// A device tensor as meta() asks for it. Throws: torch.OutOfMemoryError.
[[nodiscard]] at::Tensor new_output(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                    const c10::TensorOptions& options);
/// Throws PyTorch's message unless an in-place result has what the tensor has.
void check_in_place(const at::Tensor& self, c10::IntArrayRef sizes,
                    const c10::TensorOptions& options);
/// Checks dtype and device of an out= tensor and resizes it if need be, warning as PyTorch does.
void resize_given(const at::Tensor& given, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                  const c10::TensorOptions& options);

/// Where the CPU operator converts operands to the dtype that it computes in first, which do not
/// lie in one piece: the strides of a result of operands that lie as those copies. Nothing for
/// other operands.
[[nodiscard]] std::optional<at::DimVector> strides_of_converted(
    const at::TensorIteratorBase& iterator, c10::ScalarType computed);

/// `Meta` is one of at::meta::structured_*.
template <class Meta, OutputKind kKind, std::size_t kOutputs>
class StructuredMeta final : public Meta {
 public:
  using Outputs = std::array<at::Tensor, kOutputs>;

  explicit StructuredMeta(Outputs outputs) : outputs_(std::move(outputs)) {
    // TensorIterator asks for the address to write to, on whatever device is the current one.
    if constexpr (kKind != OutputKind::kNew) {
      for (const at::Tensor& output : outputs_) {
        if (output.defined()) materialize(*output.storage().unsafeGetStorageImpl());
      }
    }
  }

  [[nodiscard]] const Outputs& outputs() const noexcept { return outputs_; }
  [[nodiscard]] Outputs take_outputs() noexcept { return std::move(outputs_); }

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output(index, sizes, strides, options);
  }
  // Strides that the CPU kernel cannot write are its own affair: it takes a proxy and copies.
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    set_output(index, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t index) override { return outputs_[index]; }

 private:
  void set_output(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                  const at::TensorOptions& options) {
    std::optional<at::DimVector> converted;
    if constexpr (kKind != OutputKind::kInPlace &&
                  std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      converted = strides_of_converted(*this, this->common_dtype_);
      if (converted) strides = *converted;
    }
    at::Tensor& output = outputs_[index];
    if constexpr (kKind == OutputKind::kNew) {
      output = new_output(sizes, strides, options);
    } else if constexpr (kKind == OutputKind::kInPlace) {
      check_in_place(output, sizes, options);
    } else {
      resize_given(output, sizes, strides, options);
    }
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options);
    }
  }

  Outputs outputs_;
};

/// Throws PyTorch's message for operand number `argument` (as in the schema) on another device
/// than `device`.
LOOM_API void throw_device_mismatch(const char* name, const char* overload, int argument,
                                    c10::Device device, const at::Tensor& tensor);

namespace detail {

template <class T>
decltype(auto) for_meta(const T& argument) {
  return (argument);
}
inline at::OptionalScalarRef for_meta(const std::optional<at::Scalar>& argument) {
  return argument ? at::OptionalScalarRef(&*argument) : at::OptionalScalarRef();
}
inline at::OptionalTensorRef for_meta(const std::optional<at::Tensor>& argument) {
  return argument && argument->defined() ? at::OptionalTensorRef(*argument)
                                         : at::OptionalTensorRef();
}

/// Finds the device that all tensors among the arguments are on.
class SameDevice {
 public:
  SameDevice(const char* name, const char* overload) noexcept : name_(name), overload_(overload) {}
  void check(const at::Tensor& tensor) {
    const int argument = argument_++;
    if (!tensor.defined()) return;
    if (!device_) device_ = tensor.device();
    if (tensor.device() == *device_) return;
    throw_device_mismatch(name_, overload_, argument, *device_, tensor);
  }
  void check(const std::optional<at::Tensor>& tensor) { check(tensor ? *tensor : at::Tensor()); }
  template <class T>
  void check(const T&) {
    ++argument_;
  }

 private:
  const char* const name_;
  const char* const overload_;
  int argument_ = 0;
  std::optional<c10::Device> device_;
};

template <class Op, class... Argument>
void check_same_device(const Argument&... arguments) {
  SameDevice same(Op::name, Op::overload_name);
  (same.check(arguments), ...);
}

}  // namespace detail
}  // namespace loom::ops
