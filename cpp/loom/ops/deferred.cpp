// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/deferred.h"

#include "loom/backend/stream.h"
#include "loom/base/mutex.h"
#include "loom/device/queue.h"
#include "loom/ops/deferred_command.h"
#include "loom/ops/deferred_plan.h"
#include "loom/ops/empty.h"
#include "loom/ops/overlap.h"

#include <ATen/DimVector.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace loom::ops {
namespace {

/// The arguments of a call: whether they can be deferred, their device, and what of them decides
/// whether a kernel knows such a call at all: dtypes, which tensors are absent, kinds of numbers,
/// flags and names of modes.
class Operands {
 public:
  explicit Operands(const c10::OperatorHandle& op)
      : key_(std::hash<const void*>{}(&op.operator_name())) {}

  /// Returns false for what cannot be deferred. To be called for every argument, in their order.
  bool add(const c10::IValue& value, const c10::Argument& argument, bool written) {
    if (value.isTensor()) return add(value.toTensor(), written);
    if (value.isTensorList()) {
      note(value.toTensorList().size());
      for (const at::Tensor& tensor : value.toTensorList()) {
        if (!add(tensor, written)) return false;
      }
    } else if (value.isOptionalTensorList()) {
      note(value.toOptionalTensorList().size());
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        if (!add(tensor.value_or(at::Tensor()), written)) return false;
      }
    } else {
      add_other(value, argument);
    }
    return true;
  }

  [[nodiscard]] std::optional<c10::Device> device() const noexcept { return device_; }
  [[nodiscard]] std::size_t key() const noexcept { return key_; }
  /// True for dtypes that a kernel may well not know: then it is waited for once. Every kernel has
  /// code for float and double beside indices and masks, and factories for integers.
  [[nodiscard]] bool unusual_dtypes() const noexcept {
    return other_dtype_ || (integers_only_ && reads_);
  }

 private:
  /// Every argument and every tensor of a list adds to the key, so that each has its place in it.
  static constexpr std::size_t kAbsent = 0, kPresent = 1, kTensor = 2;

  bool add(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) {
      note(kAbsent);
      return true;
    }
    note_dtype(tensor.scalar_type());
    reads_ = reads_ || !written;
    note(kTensor + static_cast<std::size_t>(tensor.scalar_type()) * 2 +
         static_cast<std::size_t>(tensor.dim() == 0));
    if (tensor.layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested() ||
        tensor._is_zerotensor()) {
      return false;
    }
    if (tensor.is_privateuseone()) {
      if (!device_) device_ = tensor.device();
      return tensor.device() == *device_;
    }
    return tensor.is_cpu() && tensor.dim() == 0 && !written;
  }

  void add_other(const c10::IValue& value, const c10::Argument& argument) {
    if (value.isNone()) {
      note(kAbsent);
    } else if (value.isBool()) {
      note(kTensor + static_cast<std::size_t>(value.toBool()));
    } else if (value.isString()) {
      note(std::hash<std::string_view>{}(value.toStringView()));
    } else if (value.isComplexDouble()) {
      other_dtype_ = true;  // as a complex tensor
      note(kTensor + 3);
    } else if (value.isInt() && is_dtype(argument)) {
      const auto dtype = static_cast<c10::ScalarType>(value.toInt());
      other_dtype_ = other_dtype_ || !is_common(dtype);
      note(kTensor + 4 + static_cast<std::size_t>(dtype));
    } else {
      note(value.isDouble() ? kTensor + 2 : kPresent);
    }
  }

  static bool is_dtype(const c10::Argument& argument) {
    const auto optional = argument.real_type()->cast<c10::OptionalType>();
    const c10::TypePtr type = optional ? optional->getElementType() : argument.real_type();
    return type->kind() == c10::TypeKind::ScalarTypeType;
  }
  static bool is_real(c10::ScalarType dtype) {
    return dtype == c10::kFloat || dtype == c10::kDouble;
  }
  static bool is_common(c10::ScalarType dtype) {
    return is_real(dtype) || dtype == c10::kLong || dtype == c10::kBool;
  }

  void note_dtype(c10::ScalarType dtype) {
    integers_only_ = integers_only_ && !is_real(dtype);
    other_dtype_ = other_dtype_ || !is_common(dtype);
  }
  void note(std::size_t fact) { key_ = c10::hash_combine(key_, fact); }

  std::size_t key_;
  std::optional<c10::Device> device_;
  bool other_dtype_ = false, integers_only_ = true, reads_ = false;
};

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
bool infer(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  NoTorchFunction no_torch_function;
  try {
    op.callBoxedForDispatchKey(c10::DispatchKey::Meta, stack);
  } catch (const std::exception&) {
    return false;
  }
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

/// Keys of calls, as of Operands, whose kernel has run without an error.
class Accepted {
 public:
  bool contains(std::size_t key) {
    MutexLock lock(mutex_);
    return keys_.contains(key);
  }
  void insert(std::size_t key) {
    MutexLock lock(mutex_);
    keys_.insert(key);
  }

 private:
  Mutex mutex_;
  std::unordered_set<std::size_t> keys_ LOOM_GUARDED_BY(mutex_);
};

Accepted& accepted() {
  static Accepted& keys = *new Accepted;  // never destroyed, as plans
  return keys;
}

/// "relu" of "aten::relu"; lives as long as the operator.
const char* short_name(const c10::OperatorHandle& op) {
  return op.operator_name().name.c_str() + std::string_view("aten::").size();
}

/// What a deferred operator returns, on the device.
struct Results {
  torch::jit::Stack values;
  std::vector<TensorRef> fresh;  ///< those that are no arguments
  bool all_defined = true;

  void add(at::Tensor result) {
    all_defined = all_defined && result.defined();
    fresh.emplace_back(result, /*writes=*/true);
    values.emplace_back(std::move(result));
  }
};

/// By the operator's Meta kernel; nothing if that refuses, or cannot tell.
std::optional<Results> results_by_meta(const c10::OperatorHandle& op, const DeferredPlan& plan,
                                       Arguments given, c10::Device on) {
  MetaArguments meta;
  torch::jit::Stack inferred;
  inferred.reserve(given.size());
  for (const c10::IValue& argument : given) inferred.push_back(meta.to_meta(argument));
  const torch::jit::Stack meta_arguments = inferred;
  if (plan.infers && !infer(op, inferred)) return std::nullopt;
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
  Results results;
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
std::optional<Results> results_by_rule(const DeferredPlan& plan, Arguments given, c10::Device on) {
  const Inferred inferred = plan.rule(given);
  if (!inferred) return std::nullopt;
  for (std::size_t i = 0; i < plan.result_of.size(); ++i) {
    if (plan.result_of[i] != DeferredPlan::kNew &&
        !takes(given[static_cast<std::size_t>(plan.result_of[i])].toTensor(), (*inferred)[i])) {
      return std::nullopt;
    }
  }
  Results results;
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

bool try_defer(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const DeferredPlan& plan = deferred_plan(op);
  if (!plan.possible) return false;
  const std::vector<c10::Argument>& schema = op.schema().arguments();
  const std::size_t count = schema.size();
  const std::size_t first = stack->size() - count;
  Operands operands(op);
  for (std::size_t i = 0; i < count; ++i) {
    if (!operands.add((*stack)[first + i], schema[i], plan.writes[i])) return false;
  }
  if (!operands.device() || arguments_overlap({&(*stack)[first], count}, plan.writes)) return false;

  const Arguments given(stack->data() + first, count);
  std::optional<Results> made = plan.rule != nullptr
                                    ? results_by_rule(plan, given, *operands.device())
                                    : results_by_meta(op, plan, given, *operands.device());
  if (!made) return false;
  std::vector<DeferredArgument> arguments;
  arguments.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    arguments.emplace_back((*stack)[first + i], plan.writes[i], plan.replaces[i]);
  }
  const bool as_outputs = plan.out_form && made->all_defined;
  Queue& queue = current_queue(operands.device()->index());
  const std::uint64_t position = queue.submit(
      short_name(op), DeferredCommand(as_outputs ? *plan.out_form : op, std::move(arguments),
                                      std::move(made->fresh), as_outputs));
  // In a capture nothing can be waited for: a refusal is then an error of the replay.
  if (operands.unusual_dtypes() && !queue.captured() && !accepted().contains(operands.key())) {
    queue.synchronize(position);
    accepted().insert(operands.key());
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : made->values) stack->push_back(std::move(result));
  return true;
}

}  // namespace loom::ops
