// SPDX-License-Identifier: BSD-3-Clause
// Strided nested tensors: a buffer on the device, and sizes, strides and offsets that stay on the
// host. (Jagged ones are made of dense tensors and need nothing here but that attention on them
// goes through strided ones.) Nearly all of ATen's kernels for them never look at the buffer: they
// cut it or take it whole, and call dense operators on it, which are loom's. So the same kernels
// are loom's, and nothing waits. The few that read the buffer run on host copies.

#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/borrowed_kernel.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <optional>

namespace loom::ops {
namespace {

using c10::DispatchKey;

/// The CPU's kernel on host copies: waits, and is counted as a fallback.
void on_host_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  as_fallback(op, [&] {
    std::optional<c10::Device> device;
    const std::size_t first = stack->size() - op.schema().arguments().size();
    for (std::size_t i = first; i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (!value.isTensor() || !value.toTensor().is_privateuseone()) continue;
      device = value.toTensor().device();
      value = value.toTensor().cpu();
    }
    call_on_cpu(op, stack);
    for (std::size_t i = first; i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (device && value.isTensor() && value.toTensor().defined()) {
        value = value.toTensor().to(*device);
      }
    }
  });
}

// What ATen gives every accelerator (HPU has no kernel of its own) names no device.
void register_device_neutral(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(DispatchKey::NestedTensorHPU)) continue;
    if (name.name.starts_with("aten::native_layer_norm")) continue;  // asks a stub for the device
    library.impl(c10::toString(name).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<
                     &borrowed_kernel<DispatchKey::NestedTensorHPU>>());
  }
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  register_device_neutral(m);
  // Neutral too, although registered for fewer devices.
  for (const char* name :
       {"_nested_tensor_softmax_with_shape", "_nested_tensor_storage_offsets", "bmm", "is_pinned",
        "to_padded_tensor", "value_selecting_reduction_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<
                     &borrowed_kernel<DispatchKey::NestedTensorCPU>>());
  }
  for (const char* name :
       {"_native_multi_head_attention", "_nested_sum_backward", "_transform_bias_rescale_qkv",
        "native_layer_norm", "native_layer_norm_backward", "sum.dim_IntList"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_host_copies>());
  }
}

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // From dense to nested: neutral as well.
  for (const char* name : {"_nested_from_padded", "_nested_tensor_from_mask",
                           "_nested_tensor_from_mask_left_aligned", "_nested_view_from_buffer"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&borrowed_kernel<DispatchKey::CPU>>());
  }
}

}  // namespace loom::ops
