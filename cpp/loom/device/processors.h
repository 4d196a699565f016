// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The processors that a thread of loom may run on, and how it gets out of another one's way.
// Thread: of the calling thread only; an object belongs to one.

#include "loom/device/cpu_set.h"

namespace loom {

/// Keeps the calling thread off a processor for a while.
class Processors {
 public:
  explicit Processors(CpuSet::SetAffinity set = &sched_setaffinity) noexcept : set_(set) {}

  /// Lets the thread run anywhere it could before but on `cpu`, and has it moved at once if it is
  /// there. False, with nothing changed, if there is no other one or the system does not allow it.
  bool avoid(int cpu) noexcept;
  /// Has the thread moved to `cpu`, where it stays until it is restored. False, with nothing
  /// changed, if it may not run there.
  bool move_to(int cpu) noexcept;
  /// Lets the thread run where it could at first. If the system refuses, it stays restricted, and
  /// the next call tries again.
  void restore() noexcept;
  [[nodiscard]] bool restricted() const noexcept { return restricted_; }

 private:
  bool note_all();

  const CpuSet::SetAffinity set_;
  bool restricted_ = false;
  CpuSet all_;
};

}  // namespace loom
