// SPDX-License-Identifier: BSD-3-Clause
// Quantized tensors: the fallback runs ATen's CPU kernels on the same memory, as it does for sparse
// ones. What only reads or makes metadata is done at once.

#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/fallback/quantized_parts.h"
#include "loom/ops/launch/borrowed_kernel.h"

#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace loom::ops {
namespace {

// These kernels of the CPU name no device.
constexpr std::array<std::string_view, 8> kMetadata = {"aten::as_strided",
                                                       "aten::q_per_channel_axis",
                                                       "aten::q_per_channel_scales",
                                                       "aten::q_per_channel_zero_points",
                                                       "aten::q_scale",
                                                       "aten::q_zero_point",
                                                       "aten::qscheme",
                                                       "aten::set_.source_Storage_storage_offset"};

constexpr auto kCpuKernel = &borrowed_kernel<c10::DispatchKey::QuantizedCPU>;

// A tensor on `device`, quantized like one on any other: ATen's kernel leaves the scales of
// channels where they were, so it is shown a tensor without memory that has them on `device`
// already.
void empty_quantized(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::IValue& like = torch::jit::peek(*stack, 1, op.schema().arguments().size());
  const c10::IValue& device = torch::jit::peek(*stack, 4, op.schema().arguments().size());
  if (!device.isNone() && device.toDevice() != like.toTensor().device()) {
    const auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(nullptr, device.toDevice()),
        /*allocator=*/nullptr, /*resizable=*/false);
    const auto quantizer =
        map_quantizer(quantizer_of(like.toTensor()),
                      [&](const at::Tensor& part) { return part.to(device.toDevice()); });
    like = make_quantized(like.toTensor(), c10::Storage(storage), 0, quantizer);
  }
  kCpuKernel(op, stack);
}

}  // namespace

LOOM_LIBRARY_IMPL(_, QuantizedPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
LOOM_LIBRARY_IMPL(aten, QuantizedPrivateUse1, library) {
  for (const std::string_view name : kMetadata) {
    library.impl(name.data(), torch::CppFunction::makeFromBoxedFunction<kCpuKernel>());
  }
  library.impl("empty_quantized", torch::CppFunction::makeFromBoxedFunction<&empty_quantized>());
  // Its default for any device takes quantized tensors for dense ones.
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&fallback>());
  std::array<std::string_view, kMetadata.size() + 1> registered;
  *std::copy(kMetadata.begin(), kMetadata.end(), registered.begin()) = "aten::empty_quantized";
  prefer_cpu_kernels(library, c10::DispatchKey::QuantizedCPU, registered);
}

}  // namespace loom::ops
