// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/deferred_results.h"

#include "loom/ops/empty.h"
#include "loom/ops/inference_warnings.h"

#include <ATen/DimVector.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <unordered_map>

namespace loom::ops {
namespace {

/// Meta tensors in place of device tensors, alike in everything but their data.
class MetaArguments {
 public:
  c10::IValue to_meta(const c10::IValue& value) {
    if (value.isTensor()) return to_meta(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) list.push_back(to_meta(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional(to_meta(*tensor)) : std::nullopt);
      }
      return list;
    }
    return value;
  }

  /// True if `result` is an argument or a view of one.
  [[nodiscard]] bool shares_memory(const at::Tensor& result) const {
    const auto* storage = result.storage().unsafeGetStorageImpl();
    return std::any_of(storages_.begin(), storages_.end(), [&](const auto& known) {
      return known.second.unsafeGetStorageImpl() == storage;
    });
  }

 private:
  at::Tensor to_meta(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
    at::Tensor meta = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(meta_storage(tensor.storage())), c10::DispatchKeySet(c10::DispatchKey::Meta),
        tensor.dtype());
    meta.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                      tensor.storage_offset());
    if (tensor.is_conj()) meta._set_conj(true);
    if (tensor.is_neg()) meta._set_neg(true);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    if (tensor.requires_grad()) meta.set_requires_grad(true);
    return meta;
  }

  // One for each device storage, so that checks for overlap see what there is.
  const c10::Storage& meta_storage(const c10::Storage& storage) {
    c10::Storage& meta = storages_[storage.unsafeGetStorageImpl()];
    if (!meta) {
      meta = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), storage.nbytes(), c10::DataPtr(nullptr, c10::kMeta),
          c10::GetAllocator(c10::kMeta), /*resizable=*/true);
    }
    return meta;
  }

  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

/// Python's shape inferences are written for a thread with no torch function mode.
class NoTorchFunction {
 public:
  NoTorchFunction() : saved_(at::impl::PythonTorchFunctionTLS::get_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(
        at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~NoTorchFunction() { at::impl::PythonTorchFunctionTLS::set_state(saved_); }
  NoTorchFunction(const NoTorchFunction&) = delete;
  NoTorchFunction& operator=(const NoTorchFunction&) = delete;

 private:
  const at::impl::PythonTorchFunctionTLS saved_;
};

/// Runs the shape inference; returns false if it refuses, for whatever reason: then the CPU
/// operator itself says what is wrong, or does what the inference could not foresee.
bool infer(const c10::OperatorHandle& op, torch::jit::Stack& stack,
           std::vector<c10::Warning>& warnings) {
  CollectedWarnings collected;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  NoTorchFunction no_torch_function;
  try {
    op.callBoxedForDispatchKey(c10::DispatchKey::Meta, stack);
  } catch (const std::exception&) {
    return false;
  }
  warnings = collected.take();
  return true;
}

bool can_be_made(const at::Tensor& inferred, const MetaArguments& arguments) {
  if (!inferred.defined()) return true;
  return inferred.is_meta() && inferred.layout() == c10::kStrided && !inferred.is_quantized() &&
         !inferred.is_conj() && !inferred.is_neg() && !arguments.shares_memory(inferred);
}

/// Whether a written argument has the geometry that the inference gave its stand-in, or may be
/// given it here: an empty vector may grow. Which strides a kernel gives to what else it resizes is
/// its own affair.
bool fits(const c10::IValue& given, const c10::IValue& inferred) {
  if (!given.isTensor() || !given.toTensor().defined()) return true;
  const at::Tensor& device = given.toTensor();
  const at::Tensor& wanted = inferred.toTensor();
  if (device.sizes() == wanted.sizes()) return device.strides() == wanted.strides();
  return device.dim() == 1 && device.numel() == 0 && wanted.dim() == 1;
}

/// Strides of four dimensions that are channels last beside a batch of one.
at::DimVector last_without_batch(c10::IntArrayRef sizes) {
  at::DimVector batch{1};
  batch.append(sizes.begin(), sizes.end());
  const auto strides = c10::get_channels_last_strides_3d(batch);
  return {strides.begin() + 1, strides.end()};
}

bool is_last_without_batch(const at::Tensor& tensor) {
  if (tensor.dim() != 4 || tensor.is_contiguous()) return false;
  const at::DimVector strides = last_without_batch(tensor.sizes());
  for (std::int64_t d = 0; d < 4; ++d) {
    if (tensor.size(d) != 1 && tensor.stride(d) != strides[d]) return false;
  }
  return true;
}

/// Gives a new tensor the memory format of another one.
void follow_format(const at::Tensor& other, const at::Tensor& result, bool volumes) {
  if (volumes && is_last_without_batch(other)) {
    return result.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(),
                                                               last_without_batch(result.sizes()));
  }
  const c10::MemoryFormat format = other.suggest_memory_format();
  if (format != c10::MemoryFormat::Contiguous && result.dim() == other.dim()) {
    result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
}

/// By the operator's Meta kernel; nothing if that refuses, or cannot tell.
std::optional<DeferredResults> results_by_meta(const c10::OperatorHandle& op,
                                               const DeferredPlan& plan, Arguments given,
                                               c10::Device on) {
  MetaArguments meta;
  torch::jit::Stack inferred;
  inferred.reserve(given.size());
  for (const c10::IValue& argument : given) inferred.push_back(meta.to_meta(argument));
  const torch::jit::Stack meta_arguments = inferred;
  DeferredResults results;
  if (plan.infers && !infer(op, inferred, results.warnings)) return std::nullopt;
  for (std::size_t i = 0; i < plan.result_of.size(); ++i) {
    const bool is_new = plan.result_of[i] == DeferredPlan::kNew;
    if (!inferred[i].isTensor() || (is_new && !can_be_made(inferred[i].toTensor(), meta))) {
      return std::nullopt;
    }
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (plan.writes[i] && !fits(given[i], meta_arguments[i])) return std::nullopt;
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!plan.writes[i] || !given[i].isTensor()) continue;
    const at::Tensor& device = given[i].toTensor();
    if (device.defined() && device.sizes() != meta_arguments[i].toTensor().sizes()) {
      device.resize_(meta_arguments[i].toTensor().sizes());
    }
  }
  for (std::size_t i = 0; i < plan.result_of.size(); ++i) {
    if (plan.result_of[i] != DeferredPlan::kNew) {
      results.values.push_back(given[static_cast<std::size_t>(plan.result_of[i])]);
      continue;
    }
    const at::Tensor& like = inferred[i].toTensor();
    at::Tensor result;
    if (like.defined()) {
      result = empty_strided(like.sizes(), like.strides(), like.scalar_type(), on);
      if (plan.follows_format) follow_format(given[0].toTensor(), result, plan.takes_volumes);
    }
    results.add(std::move(result));
  }
  return results;
}

/// Whether an out= tensor can take a result: it has its sizes, or nothing yet.
bool takes(const at::Tensor& output, const Geometry& geometry) {
  return output.scalar_type() == geometry.dtype && output.is_privateuseone() &&
         (output.sizes() == c10::IntArrayRef(geometry.sizes) || output.numel() == 0);
}

/// Gives a tensor without elements others, in its own storage.
void grow(const at::Tensor& output, const Geometry& geometry) {
  std::int64_t extent = 1;
  for (std::size_t i = 0; i < geometry.sizes.size(); ++i) {
    extent = geometry.sizes[i] == 0 ? 0 : extent + (geometry.sizes[i] - 1) * geometry.strides[i];
    if (extent == 0) break;
  }
  output.resize_({extent});
  output.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides);
}

/// By a rule of our own; nothing if that does not know.
std::optional<DeferredResults> results_by_rule(const DeferredPlan& plan, Arguments given,
                                               c10::Device on) {
  const Inferred inferred = plan.rule(given);
  if (!inferred) return std::nullopt;
  for (std::size_t i = 0; i < plan.result_of.size(); ++i) {
    if (plan.result_of[i] != DeferredPlan::kNew &&
        !takes(given[static_cast<std::size_t>(plan.result_of[i])].toTensor(), (*inferred)[i])) {
      return std::nullopt;
    }
  }
  DeferredResults results;
  for (std::size_t i = 0; i < plan.result_of.size(); ++i) {
    const Geometry& geometry = (*inferred)[i];
    if (plan.result_of[i] == DeferredPlan::kNew) {
      results.add(empty_strided(geometry.sizes, geometry.strides, geometry.dtype, on));
      continue;
    }
    const c10::IValue& output = given[static_cast<std::size_t>(plan.result_of[i])];
    if (output.toTensor().sizes() != c10::IntArrayRef(geometry.sizes)) {
      grow(output.toTensor(), geometry);
    }
    results.values.push_back(output);
  }
  return results;
}

}  // namespace

std::optional<DeferredResults> make_results(const c10::OperatorHandle& op, const DeferredPlan& plan,
                                            Arguments given, c10::Device on) {
  return plan.rule != nullptr ? results_by_rule(plan, given, on)
                              : results_by_meta(op, plan, given, on);
}

}  // namespace loom::ops
