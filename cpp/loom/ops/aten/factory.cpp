// SPDX-License-Identifier: BSD-3-Clause
// Factories: everything that makes a tensor from nothing goes through these two operators.

#include "loom/backend/device_state.h"
#include "loom/backend/registration.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/type_name.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

c10::Device device_of(std::optional<c10::Device> requested) {
  const c10::DeviceIndex index = requested ? requested->index() : c10::DeviceIndex{-1};
  return to_c10(resolve_device(index, "torch.device"));
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided,
                              "empty: expected strided layout for a loom tensor, got ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

// torch.use_deterministic_algorithms fills new memory with NaN or the largest value.
void fill_if_deterministic(at::Tensor& tensor) {
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
    at::native::fill_empty_deterministic_(tensor);
  }
}

at::Tensor empty_memory_format(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<c10::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  at::Tensor tensor = empty(sizes, c10::dtype_or_default(dtype), device_of(device));
  if (memory_format && *memory_format != c10::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  fill_if_deterministic(tensor);
  return tensor;
}

at::Tensor empty_strided_op(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                            std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                            std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  TORCH_CHECK(sizes.size() == strides.size(), "mismatch in length of strides and shape");
  TORCH_CHECK(std::all_of(strides.begin(), strides.end(), [](auto s) { return s >= 0; }),
              "Trying to create tensor with negative stride: ", strides);
  at::Tensor tensor =
      empty_strided(sizes, strides, c10::dtype_or_default(dtype), device_of(device));
  fill_if_deterministic(tensor);
  return tensor;
}

// Zeros without memory, which autograd's formulas use for gradients that vanish.
at::Tensor efficient_zero_tensor(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                                 std::optional<c10::Layout> layout,
                                 std::optional<c10::Device> device,
                                 std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  at::native::ZeroTensorAllocator no_memory(device_of(device));
  constexpr c10::DispatchKeySet kKeys(
      {c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic(sizes, &no_memory, kKeys, c10::dtype_or_default(dtype),
                                   std::nullopt);
}

// Called for tensors of the device only, and refused as on CUDA.
at::Tensor pin_memory(const at::Tensor& self, std::optional<c10::Device> /*device*/) {
  TORCH_CHECK(false, "cannot pin '", type_name(self), "' only dense CPU tensors can be pinned");
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_pin_memory", pin_memory);
  library.impl("_efficientzerotensor", efficient_zero_tensor);
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided_op);
}

}  // namespace loom::ops
