// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/deferred_results.h"

#include "loom/ops/fallback/ask_meta.h"
#include "loom/ops/launch/empty.h"

#include <memory>

namespace loom::ops {
namespace {

at::Tensor make(const Geometry& geometry, c10::Device on) {
  if (geometry.dtype == c10::ScalarType::Undefined) return {};
  return empty_strided(geometry.sizes, geometry.strides, geometry.dtype, on);
}

/// By the operator's Meta kernel; nothing if that refuses, or cannot tell.
std::optional<DeferredResults> results_by_meta(const c10::OperatorHandle& op,
                                               const DeferredPlan& plan, Arguments given,
                                               const std::optional<CallKey>& key, c10::Device on) {
  const std::shared_ptr<const MetaAnswer> answer = ask_meta(op, plan, given, key);
  if (!answer) return std::nullopt;
  for (const auto& [argument, sizes] : answer->grown) given[argument].toTensor().resize_(sizes);
  DeferredResults results;
  results.warnings = answer->warnings;
  for (std::size_t i = 0; i < plan.result_of.size(); ++i) {
    if (plan.result_of[i] != DeferredPlan::kNew) {
      results.values.push_back(given[static_cast<std::size_t>(plan.result_of[i])]);
      continue;
    }
    results.add(make(answer->results[i], on));
  }
  return results;
}

/// Where nothing is to be inferred: all results are arguments.
DeferredResults results_given(const DeferredPlan& plan, Arguments given) {
  DeferredResults results;
  for (const int argument : plan.result_of) {
    results.values.push_back(given[static_cast<std::size_t>(argument)]);
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

/// By what a rule of our own said; nothing if that does not know.
std::optional<DeferredResults> results_by_rule(const DeferredPlan& plan, const Inferred& inferred,
                                               Arguments given, c10::Device on) {
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
      results.add(make(geometry, on));
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
                                            Arguments given, const std::optional<CallKey>& key,
                                            c10::Device on) {
  if (!plan.infers) return results_given(plan, given);
  Inferred inferred;
  try {
    if (plan.rule != nullptr) inferred = plan.rule(given);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  auto results = results_by_rule(plan, inferred, given, on);
  if (!results && plan.asks_meta) results = results_by_meta(op, plan, given, key, on);
  return results;
}

}  // namespace loom::ops
