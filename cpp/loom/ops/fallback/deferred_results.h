// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The results of a deferred operator (deferred.h): inferred, by a rule of ours or by the operator's
// Meta kernel, and allocated. Thread: any.

#include "loom/ops/fallback/deferred_plan.h"
#include "loom/ops/launch/tensor_ref.h"
#include "loom/ops/meta/call_key.h"

#include <ATen/core/stack.h>
#include <c10/util/Exception.h>

#include <optional>
#include <vector>

namespace loom::ops {

/// What a deferred operator returns, on the device.
struct DeferredResults {
  torch::jit::Stack values;
  std::vector<TensorRef> fresh;  ///< those that are no arguments
  bool all_defined = true;
  std::vector<c10::Warning> warnings;  ///< of the inference

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t sum = 0;
    for (const TensorRef& result : fresh) sum += result.numel();
    return sum;
  }

  [[nodiscard]] ResultSizes sizes() const {
    ResultSizes all;
    for (const TensorRef& result : fresh) {
      all.push_back(result.defined() ? std::optional(result.sizes()) : std::nullopt);
    }
    return all;
  }

  void add(at::Tensor result) {
    all_defined = all_defined && result.defined();
    fresh.emplace_back(result, /*writes=*/true);
    values.emplace_back(std::move(result));
  }
};

/// `key`: the call's. Nothing, and nothing happened, if the inference refuses, or cannot tell.
/// Throws: torch.OutOfMemoryError.
[[nodiscard]] std::optional<DeferredResults> make_results(const c10::OperatorHandle& op,
                                                          const DeferredPlan& plan, Arguments given,
                                                          const std::optional<CallKey>& key,
                                                          c10::Device on);

}  // namespace loom::ops
