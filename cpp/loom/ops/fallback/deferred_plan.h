// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What of an operator's schema decides whether it can be deferred (deferred.h), found out once an
// operator. Thread: any.

#include "loom/ops/cuts/deferred_split.h"
#include "loom/ops/fallback/widening.h"
#include "loom/ops/meta/rule.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace loom::ops {

struct DeferredPlan {
  static constexpr int kNew = -1;

  bool possible = false;
  bool follows_format = false;    ///< new results take the first argument's memory format
  bool takes_volumes = false;     ///< ... which has five dimensions, if need be with a batch of one
  bool deterministic = true;      ///< false: the kernel alerts where that is wanted
  bool misreads = false;          ///< the kernel reads wrong elements unless operands are dense
  bool infers = true;             ///< false: there is nothing to infer
  InferenceRule rule = nullptr;   ///< what is asked first, if there is one
  bool asks_meta = false;         ///< whether the Meta kernel is asked where no rule answers
  std::vector<SplitRule> splits;  ///< how the kernel may be cut
  std::optional<Widening> widening;  ///< dtypes that are computed in a wider one
  /// For each result: the argument that it is (in place, out=), or kNew.
  std::vector<int> result_of;
  /// For each argument: whether it is written.
  std::vector<bool> writes;
  /// For each argument: whether it is an out=, whose values before do not matter.
  std::vector<bool> replaces;
  /// If all results are new: the form with the same arguments and an out= for each result.
  std::optional<c10::OperatorHandle> out_form;
};

/// The plan of `op`; lives as long as the process.
[[nodiscard]] const DeferredPlan& deferred_plan(const c10::OperatorHandle& op);

}  // namespace loom::ops
