// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What an operator's Meta kernel says of the results of a call. Many of these kernels are Python
// (references and decompositions, a millisecond and the GIL), so each is asked once for what it may
// look at (call_key.h), and its answer is kept.
// Thread: any. One lock guards the answers, for as long as it takes to find one or to put one in;
// nothing else is taken meanwhile, and never the GIL.

#include "loom/base/export.h"
#include "loom/ops/fallback/deferred_plan.h"
#include "loom/ops/meta/call_key.h"

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace loom::ops {

struct MetaAnswer {
  /// An argument that is written and has other sizes afterwards: an empty vector that grows.
  struct Growth {
    std::size_t argument;
    at::DimVector sizes;
  };

  /// One a result; absent for those that are arguments.
  std::vector<Geometry> results;
  std::vector<Growth> grown;
  std::vector<c10::Warning> warnings;
};

/// `key`: the call's. Null if the Meta kernel refuses the call, or what it says cannot be done.
[[nodiscard]] std::shared_ptr<const MetaAnswer> ask_meta(const c10::OperatorHandle& op,
                                                         const DeferredPlan& plan, Arguments given,
                                                         const std::optional<CallKey>& key);

/// How often Meta kernels ran since the process began.
[[nodiscard]] LOOM_API std::uint64_t meta_kernel_runs() noexcept;

}  // namespace loom::ops
