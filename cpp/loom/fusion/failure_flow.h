// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How failures (device/failed_memory.h) go through a fused program: operators that share one have
// different operands, so each result fails by what it was computed from, not by what the others
// were. The program runs all the same; nothing in it depends on the values that it reads but the
// results. Thread: the worker that runs the program.

#include "loom/device/failure.h"
#include "loom/device/queue.h"
#include "loom/fusion/program.h"

#include <vector>

namespace loom::fusion {

class FailureFlow {
 public:
  /// Looks for what the program reads. Requires: it is closed and has not run yet.
  FailureFlow(const Program& program, const Queue& queue);
  /// Marks the results, or makes their memory healthy. Called when the program has run.
  void apply(Queue& queue) const;

 private:
  const Program& program_;
  std::vector<FailurePtr> of_store_;
};

/// The place of a load, or of a store.
[[nodiscard]] Access access_of(const Location& location, const Space& space, bool writes);

}  // namespace loom::fusion
