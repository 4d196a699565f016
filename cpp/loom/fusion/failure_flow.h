// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How failures (device/failed_memory.h) go through a fused program: operators that share one have
// different operands, so each result fails by what it was computed from, not by what the others
// were. The program runs all the same, but for the results that fail: their memory keeps what it
// held, as that of a command does that is kept from running. Thread: the worker that runs the
// program.

#include "loom/device/failure.h"
#include "loom/device/queue.h"
#include "loom/fusion/program.h"

#include <vector>

namespace loom::fusion {

class FailureFlow {
 public:
  /// Looks for what the program reads, and leaves out what fails. Requires: it is closed and has
  /// not run yet.
  FailureFlow(Program& program, const Queue& queue);
  /// Has the program whole again: it may be a graph's, and run once more.
  ~FailureFlow();
  FailureFlow(FailureFlow&&) noexcept = default;
  FailureFlow& operator=(FailureFlow&&) = delete;
  FailureFlow(const FailureFlow&) = delete;
  FailureFlow& operator=(const FailureFlow&) = delete;

  /// Marks the results, or makes their memory healthy, and has the program whole again. Called when
  /// it has run.
  void apply(Queue& queue);

 private:
  explicit FailureFlow(Program& program) noexcept : program_(program) {}
  void restore() noexcept;

  Program& program_;
  std::vector<FailurePtr> of_store_;  // null for what nobody sees, too
};

/// The place of a load, or of a store.
[[nodiscard]] Access access_of(const Location& location, const Space& space, bool writes);

}  // namespace loom::fusion
