// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/meta/structured_meta.h"

#include "loom/ops/launch/empty.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/Resize.h>
#include <c10/core/MemoryFormat.h>

#include <string>

namespace loom::ops {

at::Tensor new_output(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      const c10::TensorOptions& options) {
  const c10::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  if (!strides.empty()) return empty_strided(sizes, strides, dtype, options.device());
  return empty(sizes, dtype, options.device(),
               options.memory_format_opt().value_or(c10::MemoryFormat::Contiguous));
}

void check_in_place(const at::Tensor& self, c10::IntArrayRef sizes,
                    const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ",
              self.dtype(), " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ",
              self.device(), " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(),
              " and output tensor size ", sizes, " should match");
}

void resize_given(const at::Tensor& given, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                  const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == given.dtype(), "Expected out tensor to have dtype ",
              options.dtype(), ", but got ", given.dtype(), " instead");
  TORCH_CHECK(options.device() == given.device(), "Expected out tensor to have device ",
              options.device(), ", but got ", given.device(), " instead");
  if (!at::native::resize_output(given, sizes)) return;
  // The strides of meta() are advice, taken only when the memory is new.
  if (!strides.empty()) {
    given.as_strided_(sizes, strides);
  } else if (options.memory_format_opt()) {
    given.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

std::optional<at::DimVector> strides_of_converted(const at::TensorIteratorBase& iterator,
                                                  c10::ScalarType computed) {
  const auto is_converted = [&](const at::TensorBase& operand) {
    return operand.dim() > 0 && operand.scalar_type() != computed;
  };
  bool any = false;
  for (int i = iterator.noutputs(); i < iterator.ntensors(); ++i) {
    const at::TensorBase& operand = iterator.tensor_base(i);
    any = any || (is_converted(operand) && !operand.is_non_overlapping_and_dense());
  }
  if (!any || computed == c10::ScalarType::Undefined) return std::nullopt;
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).add_owned_output(at::Tensor());
  for (int i = iterator.noutputs(); i < iterator.ntensors(); ++i) {
    const at::TensorBase& operand = iterator.tensor_base(i);
    const at::Tensor placed(
        at::detail::empty_strided_meta(operand.sizes(), operand.strides(), operand.scalar_type()));
    config.add_owned_const_input(placed.to(computed));
  }
  return at::DimVector(config.build().output().strides());
}

void throw_device_mismatch(const char* name, const char* overload, int argument, c10::Device device,
                           const at::Tensor& tensor) {
  std::string argument_name = "an operand";
  if (const auto op = c10::Dispatcher::singleton().findSchema({name, overload})) {
    const auto& arguments = op->schema().arguments();
    if (static_cast<std::size_t>(argument) < arguments.size()) {
      argument_name = arguments[argument].name();
    }
  }
  c10::impl::common_device_check_failure(device, tensor, name, argument_name.c_str());
}

}  // namespace loom::ops
