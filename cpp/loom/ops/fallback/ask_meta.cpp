// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/ask_meta.h"

#include "loom/ops/launch/tensor_lists.h"
#include "loom/ops/meta/inference_warnings.h"
#include "loom/ops/meta/kept_answers.h"

#include <ATen/DimVector.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

namespace loom::ops {
namespace {

std::atomic<std::uint64_t> runs = 0;

/// Meta tensors in place of device tensors, alike in everything but their data.
class MetaArguments {
 public:
  c10::IValue to_meta(const c10::IValue& value) {
    return map_tensors(value, [this](const at::Tensor& tensor) { return to_meta(tensor); });
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
  runs.fetch_add(1, std::memory_order_relaxed);
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

/// The strides of a new result that takes the memory format of another tensor; null for its own.
std::optional<at::DimVector> strides_like(const at::Tensor& other, c10::IntArrayRef sizes,
                                          bool volumes) {
  if (volumes && is_last_without_batch(other)) return last_without_batch(sizes);
  if (static_cast<std::int64_t>(sizes.size()) != other.dim()) return std::nullopt;
  switch (other.suggest_memory_format()) {
    case c10::MemoryFormat::ChannelsLast:
      return at::DimVector(c10::get_channels_last_strides_2d(sizes));
    case c10::MemoryFormat::ChannelsLast3d:
      return at::DimVector(c10::get_channels_last_strides_3d(sizes));
    default:
      return std::nullopt;
  }
}

Geometry geometry_of(const at::Tensor& inferred, const DeferredPlan& plan, Arguments given) {
  Geometry geometry(inferred.scalar_type(), at::DimVector(inferred.sizes()),
                    at::DimVector(inferred.strides()));
  if (plan.follows_format) {
    auto strides = strides_like(given[0].toTensor(), inferred.sizes(), plan.takes_volumes);
    if (strides) geometry.strides = std::move(*strides);
  }
  return geometry;
}

/// Runs the Meta kernel.
std::shared_ptr<MetaAnswer> run_meta(const c10::OperatorHandle& op, const DeferredPlan& plan,
                                     Arguments given) {
  MetaArguments meta;
  torch::jit::Stack inferred;
  inferred.reserve(given.size());
  for (const c10::IValue& argument : given) inferred.push_back(meta.to_meta(argument));
  const torch::jit::Stack meta_arguments = inferred;
  auto answer = std::make_shared<MetaAnswer>();
  if (!infer(op, inferred, answer->warnings)) return nullptr;
  for (std::size_t i = 0; i < plan.result_of.size(); ++i) {
    if (!inferred[i].isTensor()) return nullptr;
    Geometry& result = answer->results.emplace_back(Geometry::absent());
    if (plan.result_of[i] != DeferredPlan::kNew) continue;
    const at::Tensor& tensor = inferred[i].toTensor();
    if (!can_be_made(tensor, meta)) return nullptr;
    if (tensor.defined()) result = geometry_of(tensor, plan, given);
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!plan.writes[i]) continue;
    if (!fits(given[i], meta_arguments[i])) return nullptr;
    if (!given[i].isTensor() || !given[i].toTensor().defined()) continue;
    const c10::IntArrayRef sizes = meta_arguments[i].toTensor().sizes();
    if (given[i].toTensor().sizes() != sizes) answer->grown.push_back({i, at::DimVector(sizes)});
  }
  return answer;
}

KeptAnswers<MetaAnswer>& kept_answers() {
  constexpr std::size_t kMostWords = std::size_t{1} << 18;          // two generations of 2 MiB
  static auto& answers = *new KeptAnswers<MetaAnswer>(kMostWords);  // never destroyed, as plans
  return answers;
}

}  // namespace

std::shared_ptr<const MetaAnswer> ask_meta(const c10::OperatorHandle& op, const DeferredPlan& plan,
                                           Arguments given, const std::optional<CallKey>& key) {
  if (!key) return run_meta(op, plan, given);
  if (auto known = kept_answers().find(*key)) return known;
  std::shared_ptr<const MetaAnswer> answer = run_meta(op, plan, given);
  // A refusal may be of the moment (an interrupt, no memory). Warnings that ATen gives once only
  // must not be repeated; they are C++'s, since Python gives its own: asking again is cheap.
  if (answer && answer->warnings.empty()) kept_answers().insert(*key, answer);
  return answer;
}

std::uint64_t meta_kernel_runs() noexcept { return runs.load(std::memory_order_relaxed); }

}  // namespace loom::ops
