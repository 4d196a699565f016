// SPDX-License-Identifier: BSD-3-Clause
// Sparse tensors: the fallback runs ATen's CPU kernels on their parts. What only reads the tensor
// object, or makes one of parts, is done at once and waits for nobody.

#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/borrowed_kernel.h"

#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace loom::ops {
namespace {

// These kernels of the CPU name no device.
constexpr std::array<std::string_view, 11> kCoordinate = {
    "aten::_coalesced_",  "aten::_dimI",      "aten::_dimV",     "aten::_indices",
    "aten::_nnz",         "aten::_values",    "aten::dense_dim", "aten::indices",
    "aten::is_coalesced", "aten::sparse_dim", "aten::values"};
constexpr std::array<std::string_view, 8> kCompressed = {
    "aten::_nnz",      "aten::ccol_indices", "aten::col_indices", "aten::crow_indices",
    "aten::dense_dim", "aten::row_indices",  "aten::sparse_dim",  "aten::values"};

// These make coordinate tensors.
constexpr std::array<std::string_view, 3> kMakers = {
    "aten::_sparse_coo_tensor_with_dims", "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::clone"};

/// The device of the first of the arguments that has or says one, if it is a loom device.
std::optional<c10::Device> device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    std::optional<c10::Device> device;
    if (argument.isTensor() && argument.toTensor().defined()) device = argument.toTensor().device();
    if (argument.isDevice()) device = argument.toDevice();
    if (device && device->is_privateuseone()) return device;
  }
  return std::nullopt;
}

// A new coordinate tensor is on the current device, whatever its parts are on.
void make_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(
      device_of(torch::jit::last(*stack, op.schema().arguments().size())));
  borrowed_kernel<c10::DispatchKey::SparseCPU>(op, stack);
}

template <c10::DispatchKey kCpuKey>
void register_readers(torch::Library& library, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    library.impl(name.data(),
                 torch::CppFunction::makeFromBoxedFunction<&borrowed_kernel<kCpuKey>>());
  }
}

}  // namespace

LOOM_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
LOOM_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
LOOM_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  register_readers<c10::DispatchKey::SparseCPU>(library, kCoordinate);
  for (const std::string_view name : kMakers) {
    library.impl(name.data(), torch::CppFunction::makeFromBoxedFunction<&make_on_device>());
  }
  std::array<std::string_view, kCoordinate.size() + kMakers.size()> registered;
  std::ranges::copy(kMakers, std::ranges::copy(kCoordinate, registered.begin()).out);
  prefer_cpu_kernels(library, c10::DispatchKey::SparseCPU, registered);
}
LOOM_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  register_readers<c10::DispatchKey::SparseCsrCPU>(library, kCompressed);
  prefer_cpu_kernels(library, c10::DispatchKey::SparseCsrCPU, kCompressed);
}

}  // namespace loom::ops
