// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/deferred_plan.h"

#include "loom/base/mutex.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace loom::ops {
namespace {

// Operators whose shape inference does not tell what the CPU kernel does.
constexpr std::array<std::string_view, 7> kExcluded = {
    // Another dtype of the statistics, or statistics that out= is not given.
    "aten::native_batch_norm",
    "aten::_batch_norm_with_update",
    // Statistics that the kernel gives the number of channels at the first call.
    "aten::_fused_moving_avg_obs_fq_helper",
    // Quantized results, which are not inferred as such.
    "aten::quantize_per_tensor",
    "aten::quantize_per_tensor_dynamic",
    "aten::quantize_per_channel",
    "aten::_make_per_tensor_quantized_tensor",
};

// Their CPU kernels for an out= make a new tensor and copy it; who returns one makes it in its
// place.
constexpr std::array<std::string_view, 5> kCopiesToOutput = {
    "aten::_fft_c2c", "aten::_fft_c2r",         "aten::_fft_r2c",
    "aten::cholesky", "aten::cholesky_inverse",
};

// Operators whose out= kernel resizes the result, first to another size than the final one.
constexpr std::array<std::string_view, 2> kResizesOutput = {"aten::huber_loss",
                                                            "aten::binary_cross_entropy"};

// Operators whose CPU kernel gives the result the memory format of the first argument.
constexpr std::array<std::string_view, 2> kFollowsFormat = {"aten::max_unpool2d",
                                                            "aten::reflection_pad2d"};

// The same for (channels, depth, height, width), too, which beside a batch would be channels last.
constexpr std::array<std::string_view, 1> kFollowsFormatOfVolumes = {
    "aten::max_pool3d_with_indices"};

// Operators that are tagged as depending on data because of masks, which have been made indices of
// before they come here (indexing.cpp).
constexpr std::array<std::string_view, 1> kIndexing = {"aten::index"};

// Operators with nothing to infer: what they write is given, and of the right size.
constexpr std::array<std::string_view, 4> kNothingInferred = {
    "aten::_cummax_helper", "aten::_cummin_helper", "aten::_fused_adagrad_",
    "aten::_amp_foreach_non_finite_check_and_unscale_"};

// Operators that write all of what they write, though it is no out= of theirs.
constexpr std::array<std::string_view, 2> kWritesAllOver = {"aten::_cummax_helper",
                                                            "aten::_cummin_helper"};

// Operators whose CPU kernel raises or warns where only deterministic algorithms are wanted.
constexpr std::array<std::string_view, 3> kNotDeterministic = {"aten::put_", "aten::max_unpool2d",
                                                               "aten::max_unpool3d"};

// Operators whose CPU kernel gives numbers that are not of an operand whose elements share memory
// or lie apart: other ones each time.
constexpr std::array<std::string_view, 4> kMisreads = {
    "aten::median", "aten::nanmedian", "aten::_embedding_bag", "aten::_embedding_bag_forward_only"};

bool contains(std::span<const std::string_view> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_tensor(const c10::Argument& argument) {
  return argument.type()->kind() == c10::TypeKind::TensorType;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Arguments that mean something else on the worker than on the caller.
bool is_bound_to_caller(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  const c10::TypePtr type = optional ? optional->getElementType() : argument.type();
  const c10::TypeKind kind = type->kind();
  return kind == c10::TypeKind::GeneratorType || kind == c10::TypeKind::DeviceObjType ||
         kind == c10::TypeKind::StorageType || kind == c10::TypeKind::StreamObjType;
}

bool shape_depends_on_data(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output) ||
         op.hasTag(at::Tag::nondeterministic_seeded);
}

/// All overloads of every aten operator.
class Overloads {
 public:
  Overloads() {
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (!name.name.starts_with("aten::")) continue;
      if (const auto op = dispatcher.findSchema(name)) by_name_[name.name].push_back(*op);
    }
  }
  [[nodiscard]] const std::vector<c10::OperatorHandle>& of(const std::string& name) const {
    static const std::vector<c10::OperatorHandle> none;
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? none : found->second;
  }

 private:
  std::unordered_map<std::string, std::vector<c10::OperatorHandle>> by_name_;
};

const Overloads& overloads() {
  static const Overloads all;
  return all;
}

bool is_out_form(const c10::FunctionSchema& functional, const c10::FunctionSchema& candidate) {
  const auto& given = functional.arguments();
  const auto& all = candidate.arguments();
  if (all.size() != given.size() + functional.returns().size()) return false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (all[i].name() != given[i].name() || *all[i].type() != *given[i].type()) return false;
    if (is_written(all[i])) return false;
  }
  return std::all_of(
      all.begin() + static_cast<std::ptrdiff_t>(given.size()), all.end(),
      [](const auto& argument) { return is_tensor(argument) && is_written(argument); });
}

std::optional<c10::OperatorHandle> find_out_form(const c10::OperatorHandle& op) {
  for (const c10::OperatorHandle& candidate : overloads().of(op.operator_name().name)) {
    // Without a CPU kernel of its own it would call the functional form and copy.
    if (candidate.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        is_out_form(op.schema(), candidate.schema())) {
      return candidate;
    }
  }
  return std::nullopt;
}

/// The argument that a result is, kNew, or nothing if it is a view.
std::optional<int> result_of(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (result.alias_info() == nullptr) return DeferredPlan::kNew;
  if (!result.alias_info()->isWrite()) return std::nullopt;
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i]) && *arguments[i].alias_info() == *result.alias_info()) {
      return static_cast<int>(i);
    }
  }
  return std::nullopt;
}

DeferredPlan make_plan(const c10::OperatorHandle& op) {
  DeferredPlan plan;
  const std::string& name = op.operator_name().name;
  const c10::FunctionSchema& schema = op.schema();
  // The CPU kernels of others may be anything, Python for one.
  constexpr std::string_view kNamespace = "aten::";
  if (!name.starts_with(kNamespace)) return plan;
  plan.widening = widening_of(std::string_view(name).substr(kNamespace.size()));
  if (contains(kExcluded, name)) return plan;
  plan.misreads = contains(kMisreads, name);
  plan.infers = !contains(kNothingInferred, name);
  plan.deterministic = !contains(kNotDeterministic, name);
  plan.takes_volumes = contains(kFollowsFormatOfVolumes, name);
  plan.follows_format = plan.takes_volumes || contains(kFollowsFormat, name);
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return plan;
  const KnownRule known = inference_rule(op.operator_name());
  plan.rule = known.rule;
  plan.asks_meta = plan.infers && known.otherwise == Otherwise::kMeta &&
                   op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
  if (plan.infers && plan.rule == nullptr && !plan.asks_meta) return plan;
  const auto& forms = overloads().of(name);  // not every form has the tags that belong to all
  if (!contains(kIndexing, name) && plan.rule == nullptr &&
      std::any_of(forms.begin(), forms.end(), shape_depends_on_data)) {
    return plan;
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (is_bound_to_caller(argument)) return plan;
    plan.writes.push_back(is_written(argument));
    plan.replaces.push_back(argument.is_out() || contains(kWritesAllOver, name));
    if (plan.infers && plan.writes.back() && !is_tensor(argument)) return plan;
  }
  for (const c10::Argument& result : schema.returns()) {
    const auto argument = result_of(schema, result);
    if (!is_tensor(result) || !argument) return plan;
    plan.result_of.push_back(*argument);
  }
  if (plan.infers && plan.result_of.empty()) return plan;
  const bool all_new = std::all_of(plan.result_of.begin(), plan.result_of.end(),
                                   [](int argument) { return argument == DeferredPlan::kNew; });
  const bool fills_output = !contains(kResizesOutput, name) && !contains(kCopiesToOutput, name);
  if (all_new && fills_output) plan.out_form = find_out_form(op);
  plan.splits = split_rules(op);
  plan.possible = true;
  return plan;
}

/// Plans by operator. Entries stay where they are and are never changed.
class Plans {
 public:
  const DeferredPlan& of(const c10::OperatorHandle& op) {
    const c10::OperatorName* key = &op.operator_name();  // lives as long as the operator
    {
      MutexLock lock(mutex_);
      if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
    }
    auto plan = std::make_unique<const DeferredPlan>(make_plan(op));
    MutexLock lock(mutex_);
    return *plans_.emplace(key, std::move(plan)).first->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<const c10::OperatorName*, std::unique_ptr<const DeferredPlan>> plans_
      LOOM_GUARDED_BY(mutex_);
};

}  // namespace

const DeferredPlan& deferred_plan(const c10::OperatorHandle& op) {
  static Plans& plans = *new Plans;  // never destroyed: needed until the end
  return plans.of(op);
}

}  // namespace loom::ops
