// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/deferred.h"

#include "loom/backend/stream.h"
#include "loom/base/hash.h"
#include "loom/base/mutex.h"
#include "loom/device/queue.h"
#include "loom/ops/fallback/deferred_command.h"
#include "loom/ops/fallback/deferred_plan.h"
#include "loom/ops/fallback/deferred_results.h"
#include "loom/ops/fallback/trial.h"
#include "loom/ops/launch/overlap.h"
#include "loom/ops/meta/call_key.h"
#include "loom/ops/meta/kept_answers.h"

#include <ATen/Context.h>

#include <algorithm>
#include <unordered_set>

namespace loom::ops {
namespace {

/// The arguments of a call: whether they can be deferred, their device, and what of them decides
/// whether a kernel knows such a call at all (dtypes, which tensors are absent, kinds of numbers,
/// flags and names of modes).
class DeferredOperands {
 public:
  explicit DeferredOperands(const c10::OperatorHandle& op)
      : kind_(std::hash<const void*>{}(&op.operator_name())) {
    note(static_cast<std::size_t>(at::globalContext().deterministicAlgorithms()));
  }

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
      return add_other(value, argument);
    }
    return true;
  }

  [[nodiscard]] std::optional<c10::Device> device() const noexcept { return device_; }
  [[nodiscard]] std::uint64_t kind_of_call() const noexcept { return kind_; }
  [[nodiscard]] std::int64_t elements() const noexcept { return elements_; }
  /// True for dtypes that a kernel may well not know: then it is waited for once. Every kernel has
  /// code for float and double beside indices and masks, and factories for integers.
  [[nodiscard]] bool unusual_dtypes() const noexcept {
    return other_dtype_ || (integers_only_ && reads_);
  }

 private:
  /// Every argument and every element of a list adds to the kind, so that each has its place in it.
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
    elements_ += trial_elements(tensor);
    if (tensor.is_privateuseone()) {
      if (!device_) device_ = tensor.device();
      return tensor.device() == *device_;
    }
    return tensor.is_cpu() && tensor.dim() == 0 && !written;
  }

  bool add_other(const c10::IValue& value, const c10::Argument& argument) {
    if (value.isNone()) {
      note(kAbsent);
    } else if (value.isBool()) {
      // The call itself raises what it finds in the data.
      if (value.toBool() && argument.name() == "check_errors") return false;
      note(kTensor + static_cast<std::size_t>(value.toBool()));
    } else if (value.isList()) {
      note(value.toListRef().size());
      for (const c10::IValue& element : value.toListRef()) add_other(element, argument);
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
    return true;
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
  void note(std::uint64_t fact) { kind_ = mixed(kind_, fact); }

  std::uint64_t kind_;
  std::int64_t elements_ = 0;
  std::optional<c10::Device> device_;
  bool other_dtype_ = false, integers_only_ = true, reads_ = false;
};

/// What kernels take: calls, and kinds of calls as DeferredOperands knows them.
class Accepted {
 public:
  bool has_kind(std::uint64_t kind) {
    MutexLock lock(mutex_);
    return kinds_.contains(kind);
  }
  bool has_call(const CallKey& call) { return calls_.find(call) != nullptr; }
  void insert(std::uint64_t kind, const std::optional<CallKey>& call) {
    static const auto yes = std::make_shared<const bool>(true);
    if (call) calls_.insert(*call, yes);
    MutexLock lock(mutex_);
    // Kinds that never come again are not kept for ever: another trial costs little.
    if (kinds_.size() >= kMostKinds) kinds_.clear();
    kinds_.insert(kind);
  }

 private:
  static constexpr std::size_t kMostKinds = 1 << 14;
  static constexpr std::size_t kMostWords = 1 << 18;  // two generations of 2 MiB

  KeptAnswers<bool> calls_{kMostWords};
  Mutex mutex_;
  std::unordered_set<std::uint64_t> kinds_ LOOM_GUARDED_BY(mutex_);
};

Accepted& accepted() {
  static Accepted& calls = *new Accepted;  // never destroyed, as plans
  return calls;
}

/// Whether the CPU operator refuses a call for something else than the values. Small ones are all
/// tried, once for each key, or each time if there is none; others once for what decides whether
/// the kernel knows such calls. The largest have to show it on the worker.
Verdict judge(const c10::OperatorHandle& op, const DeferredOperands& operands,
              const std::optional<CallKey>& call, Arguments given, std::int64_t results) {
  constexpr std::int64_t kSmall = 1 << 13, kMost = 1 << 18;
  const std::int64_t elements = operands.elements() + results;
  const std::uint64_t kind = operands.kind_of_call();
  const bool known =
      elements <= kSmall ? call && accepted().has_call(*call) : accepted().has_kind(kind);
  if (known) return Verdict::kTaken;
  if (elements > kMost) return operands.unusual_dtypes() ? Verdict::kNotKnown : Verdict::kTaken;
  if (!passes_trial(op, given)) return Verdict::kRefused;
  accepted().insert(kind, call);
  return Verdict::kTaken;
}

/// "relu" of "aten::relu"; lives as long as the operator.
const char* short_name(const c10::OperatorHandle& op) {
  return op.operator_name().name.c_str() + std::string_view("aten::").size();
}

}  // namespace

bool try_defer(const DeferredPlan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack,
               c10::function_ref<void()> run_on_host) {
  // The alert is given by the call, so by the CPU operator on the caller.
  const bool alerts = !plan.deterministic && at::globalContext().deterministicAlgorithms();
  if (!plan.possible || alerts) return false;
  const std::vector<c10::Argument>& schema = op.schema().arguments();
  const std::size_t count = schema.size();
  const std::size_t first = stack->size() - count;
  DeferredOperands operands(op);
  for (std::size_t i = 0; i < count; ++i) {
    if (!operands.add((*stack)[first + i], schema[i], plan.writes[i])) return false;
  }
  if (!operands.device() || arguments_overlap({&(*stack)[first], count}, plan.writes)) return false;
  const Arguments given(stack->data() + first, count);
  const std::optional<CallKey> key = CallKey::of(op, given);
  std::optional<DeferredResults> made = make_results(op, plan, given, key, *operands.device());
  if (!made) return false;
  Queue& queue = current_queue(operands.device()->index());
  const Verdict verdict = judge(op, operands, key, given, made->elements());
  // In a capture nothing can be waited for: a refusal is then an error of the replay.
  if (verdict == Verdict::kRefused && !queue.captured()) {
    run_on_host();
    accepted().insert(operands.kind_of_call(), key);
    return true;
  }
  std::vector<DeferredArgument> arguments;
  arguments.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    arguments.emplace_back((*stack)[first + i], plan.writes[i], plan.replaces[i]);
  }
  std::optional<DeferredSplit> split =
      plan.splits.empty() ? std::nullopt : split_of(plan.splits, given, plan.writes, made->sizes());
  const bool as_outputs = plan.out_form && made->all_defined;
  DeferredCommand command(as_outputs ? *plan.out_form : op, std::move(arguments),
                          std::move(made->fresh), as_outputs, std::move(split));
  for (const c10::Warning& warning : made->warnings) {
    c10::warn(warning);
    command.leave_out_warning(warning.msg());
  }
  const std::uint64_t position = queue.submit(short_name(op), std::move(command));
  if (verdict == Verdict::kNotKnown && !queue.captured()) {
    queue.synchronize(position);
    accepted().insert(operands.kind_of_call(), key);
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : made->values) stack->push_back(std::move(result));
  return true;
}

}  // namespace loom::ops
