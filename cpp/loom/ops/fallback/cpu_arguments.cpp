// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/cpu_arguments.h"

#include "loom/backend/device_state.h"
#include "loom/backend/generator.h"
#include "loom/device/address.h"
#include "loom/device/failed_memory.h"
#include "loom/ops/fallback/quantized_parts.h"
#include "loom/ops/fallback/sparse_parts.h"
#include "loom/ops/launch/device_output_scope.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/tensor_lists.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

namespace loom::ops {
namespace {

// Operators that take host tensors beside device tensors on every accelerator: indices, lengths and
// copies (of sparse and quantized tensors: others have kernels).
constexpr std::array<std::string_view, 9> kMixedDevices = {
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_ctc_loss",
    "aten::_unsafe_index",
    "aten::copy_",
    "aten::copy_sparse_to_sparse_",
    "aten::_empty_per_channel_affine_quantized"};

bool may_mix_devices(const std::string& name) {
  return std::any_of(kMixedDevices.begin(), kMixedDevices.end(), [&](std::string_view mixed) {
    return name == mixed || name == std::string(mixed) + "_backward";
  });
}

std::uint64_t mix(std::uint64_t seed, std::uint64_t offset) {
  // splitmix64's finaliser (Steele, Lea, Flood 2014): neighbouring offsets give unrelated seeds.
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (offset + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

bool takes_generator(const c10::FunctionSchema& schema) {
  return std::any_of(
      schema.arguments().begin(), schema.arguments().end(), [](const auto& argument) {
        const auto optional = argument.type()->template cast<c10::OptionalType>();
        const c10::TypePtr type = optional ? optional->getElementType() : argument.type();
        return type->kind() == c10::TypeKind::GeneratorType;
      });
}

bool is_generator(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  const c10::TypePtr type = optional ? optional->getElementType() : argument.type();
  return type->kind() == c10::TypeKind::GeneratorType;
}

/// A loom generator alone brings operators on host tensors here. Throws: PyTorch's message.
void check_host_generator(const c10::IValue& generator) {
  TORCH_CHECK(!generator.isGenerator() || !generator.toGenerator().defined(), "Expected a '",
              c10::kCPU, "' device type for generator but found '",
              generator.toGenerator().device().type(), "'");
}

void copy_geometry(const at::Tensor& from, const at::Tensor& to) {
  to.unsafeGetTensorImpl()->set_sizes_and_strides(from.sizes(), from.strides(),
                                                  from.storage_offset());
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

void copy_bits(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
}

}  // namespace

CpuArguments::CpuArguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
    : op_(op), output_device_(c10::kPrivateUse1, -1) {
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  for (const c10::IValue& argument : arguments) look_at(argument);
  if (devices_.empty() && output_device_.index() < 0) {
    for (const c10::IValue& argument : arguments) check_host_generator(argument);
  }
  if (output_device_.index() < 0) output_device_ = to_c10(current_device());
  devices_.insert(output_device_.index());
  if (may_mix_devices(op.operator_name().name)) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) check_device(arguments[i], i);
}

void CpuArguments::check_device(const c10::IValue& value, std::size_t argument) const {
  if (!value.isTensor()) return;
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined() || tensor.device() == output_device_) return;
  const c10::Argument& declared = op_.schema().arguments()[argument];
  const bool written = declared.alias_info() != nullptr && declared.alias_info()->isWrite();
  // A host number may be read.
  if (tensor.device().is_cpu() && tensor.dim() == 0 && !written) return;
  c10::impl::common_device_check_failure(output_device_, tensor, op_.operator_name().name.c_str(),
                                         declared.name().c_str());
}

CpuArguments::~CpuArguments() {
  if (!saved_generator_state_.defined()) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(saved_generator_state_);
}

void CpuArguments::look_at(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return;
  devices_.insert(tensor.device().index());
  if (output_device_.index() < 0) output_device_ = tensor.device();
}

void CpuArguments::look_at(const c10::IValue& value) {
  for_each_tensor(value, [this](const at::Tensor& tensor) { look_at(tensor); });
  if (value.isDevice() && value.toDevice().is_privateuseone()) {
    output_device_ = to_c10(resolve_device(value.toDevice().index(), "device"));
  }
}

void CpuArguments::convert(torch::jit::Stack& stack) {
  const auto& schema = op_.schema().arguments();
  const std::size_t first = stack.size() - schema.size();
  for (std::size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].is_out() && stack[first + i].isTensor()) {
      outputs_.push_back(stack[first + i].toTensor());
    }
    stack[first + i] = to_cpu(stack[first + i], schema[i]);
  }
  if (op_.hasTag(at::Tag::nondeterministic_seeded) && !takes_generator(op_.schema())) {
    seed_default_generator();
  }
}

c10::IValue CpuArguments::to_cpu(const c10::IValue& value, const c10::Argument& argument) {
  if (value.isDevice() && value.toDevice().is_privateuseone()) return c10::Device(c10::kCPU);
  if (is_generator(argument)) {
    return cpu_generator(value.isNone() ? std::nullopt : std::optional(value.toGenerator()));
  }
  return map_tensors(value, [this](const at::Tensor& tensor) { return to_cpu(tensor); });
}

at::Tensor CpuArguments::to_cpu(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_privateuseone()) return host_arguments_.emplace_back(tensor);
  for (const TensorPair& pair : tensors_) {
    if (pair.device.is_same(tensor)) return pair.cpu;  // one operand given twice stays one
  }
  if (is_sparse(tensor)) {
    const auto part_to_cpu = [this](const at::Tensor& part) { return to_cpu(part); };
    return remember(tensor, make_sparse(tensor, c10::kCPU, part_to_cpu));
  }
  if (tensor.is_quantized()) {
    // Host copies of its tensors, since an operator may hand the quantizer on to a host tensor.
    const auto quantizer = map_quantizer(quantizer_of(tensor), [](const at::Tensor& part) {
      return part.is_privateuseone() ? part.cpu() : part;
    });
    const at::Tensor cpu = remember(tensor, make_quantized(tensor, cpu_storage(tensor.storage()),
                                                           tensor.storage_offset(), quantizer));
    tensors_.back().quantizer = quantizer;
    return cpu;
  }
  at::Tensor cpu = at::detail::make_tensor<c10::TensorImpl>(
      cpu_storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  copy_geometry(tensor, cpu);
  copy_bits(tensor, cpu);
  return remember(tensor, std::move(cpu));
}

at::Tensor CpuArguments::remember(const at::Tensor& device, at::Tensor cpu) {
  // Some kernels ask whether there will be a backward pass that needs a further result of theirs.
  if (device.requires_grad()) cpu.set_requires_grad(true);
  return tensors_.emplace_back(device, std::move(cpu)).cpu;
}

c10::Storage CpuArguments::cpu_storage(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  c10::Storage& cpu = cpu_storages_[impl];
  if (!cpu) {
    materialize(*impl);
    // Operators that pack parameters keep what they are given, so it keeps the memory.
    const auto release = [](void* owner) { delete static_cast<c10::Storage*>(owner); };
    cpu = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
        c10::DataPtr(host_address(impl->mutable_data()), new c10::Storage(storage), release,
                     c10::kCPU),
        scoped_cpu_allocator(), /*resizable=*/true);
    device_storages_.emplace(cpu.unsafeGetStorageImpl(), storage);
  }
  return cpu;
}

at::Generator CpuArguments::cpu_generator(const std::optional<at::Generator>& generator) {
  if (generator && generator->defined() && !generator->device().is_privateuseone()) {
    TORCH_CHECK(false, "Expected a '", c10::kPrivateUse1, "' device type for generator but found '",
                generator->device().type(), "'");
  }
  const bool given = generator && generator->defined();
  PhiloxGenerator& philox =
      generator_or_default(given ? generator : std::nullopt, output_device_.index());
  const auto [seed, offset] = philox.reserve(4);
  return at::make_generator<at::CPUGeneratorImpl>(mix(seed, offset));
}

void CpuArguments::seed_default_generator() {
  const auto [seed, offset] = generator_or_default(std::nullopt, output_device_.index()).reserve(4);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  saved_generator_state_ = generator.get_state();
  generator.set_current_seed(mix(seed, offset));
}

void CpuArguments::check_values() const {
  if (!FailedMemory::any()) return;
  for (const TensorPair& pair : tensors_) {
    const bool is_output = std::any_of(outputs_.begin(), outputs_.end(), [&](const auto& output) {
      return output.is_same(pair.device);
    });
    if (!is_output && !is_sparse(pair.device)) TensorRef(pair.device).check_values();
  }
}

void CpuArguments::note_replaced() const {
  if (!FailedMemory::any()) return;
  AccessList accesses;
  for (const at::Tensor& output : outputs_) {
    if (output.defined() && output.is_privateuseone() && !is_sparse(output)) {
      TensorRef(output).append_access(accesses, AccessKind::kReplace);
    }
  }
  FailedMemory::clear(accesses);
}

void CpuArguments::write_back() {
  const auto part_to_device = [this](const at::Tensor& part) { return to_device(part); };
  for (const TensorPair& pair : tensors_) {
    if (is_sparse(pair.cpu)) {
      assign_sparse(pair.cpu, pair.device, part_to_device);
      continue;
    }
    c10::StorageImpl* cpu = pair.cpu.storage().unsafeGetStorageImpl();
    c10::StorageImpl* device = pair.device.storage().unsafeGetStorageImpl();
    if (std::optional<c10::DataPtr> grown = take_device_memory(*cpu)) {
      device->set_data_ptr_noswap(std::move(*grown));
      device->set_nbytes(cpu->nbytes());
    }
    if (!same_geometry(pair.device, pair.cpu)) copy_geometry(pair.cpu, pair.device);
    // Operators that solve for the conjugate set the bit on their result instead of a pass over it.
    if (pair.device.is_conj() != pair.cpu.is_conj()) pair.device._set_conj(pair.cpu.is_conj());
    if (pair.device.is_neg() != pair.cpu.is_neg()) pair.device._set_neg(pair.cpu.is_neg());
    if (quantizer_of(pair.cpu) != pair.quantizer) {
      set_quantizer(pair.device, device_quantizer(pair.cpu));
    }
  }
}

void CpuArguments::convert_results(torch::jit::Stack& stack) {
  const std::size_t count = op_.schema().returns().size();
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) stack[i] = to_device(stack[i]);
}

c10::IValue CpuArguments::to_device(const c10::IValue& value) {
  return map_tensors(value, [this](const at::Tensor& tensor) { return to_device(tensor); });
}

at::Tensor CpuArguments::to_device(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  for (const TensorPair& pair : tensors_) {
    if (pair.cpu.is_same(tensor)) return pair.device;
  }
  if (is_argument(tensor)) return tensor;
  if (is_sparse(tensor)) {
    const auto part_to_device = [this](const at::Tensor& part) { return to_device(part); };
    return make_sparse(tensor, output_device_, part_to_device);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, op_.operator_name().name,
                              ": expected a strided or sparse result, got ", tensor.toString(),
                              ", which has no loom form; call it on a .cpu() copy");
  if (std::optional<c10::Storage> storage = device_storage(tensor)) {
    return on_device(std::move(*storage), tensor, tensor.storage_offset());
  }
  // The operator returned memory that it had before, such as a host tensor it was given.
  const at::Tensor source = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  at::Tensor device =
      empty_strided(source.sizes(), source.strides(), source.scalar_type(), output_device_);
  if (source.numel() > 0) {
    wait_for_host_write(output_device_);
    std::memcpy(host_address(device.data_ptr()), source.data_ptr(), source.nbytes());
  }
  return on_device(device.storage(), source, 0);
}

at::Tensor CpuArguments::on_device(c10::Storage storage, const at::Tensor& cpu,
                                   std::int64_t storage_offset) {
  if (cpu.is_quantized()) {
    return make_quantized(cpu, std::move(storage), storage_offset, device_quantizer(cpu));
  }
  at::Tensor device = make_tensor(std::move(storage), cpu.scalar_type(), cpu.sizes(), cpu.strides(),
                                  storage_offset);
  copy_bits(cpu, device);
  return device;
}

at::QuantizerPtr CpuArguments::device_quantizer(const at::Tensor& cpu) {
  return map_quantizer(quantizer_of(cpu), [this](const at::Tensor& part) {
    return to_device(part).to(output_device_);  // which a host argument is not on
  });
}

bool CpuArguments::is_argument(const at::Tensor& tensor) const {
  return std::any_of(host_arguments_.begin(), host_arguments_.end(),
                     [&](const at::Tensor& given) { return given.is_same(tensor); });
}

std::optional<c10::Storage> CpuArguments::device_storage(const at::Tensor& tensor) {
  c10::StorageImpl* cpu = tensor.storage().unsafeGetStorageImpl();
  if (const auto known = device_storages_.find(cpu); known != device_storages_.end()) {
    return known->second;
  }
  std::optional<c10::DataPtr> memory = take_device_memory(*cpu);
  if (!memory) return std::nullopt;
  c10::Storage device = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), cpu->nbytes(), std::move(*memory),
      c10::GetAllocator(c10::kPrivateUse1), /*resizable=*/true);
  device_storages_.emplace(cpu, device);
  return device;
}

}  // namespace loom::ops
