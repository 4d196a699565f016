// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The processors that a thread of loom may run on, and how it gets out of another one's way. What
// others allow the thread meanwhile (taskset -ap) holds: it is left as it is. The very set that the
// thread has chosen itself is taken for theirs if the main thread has got it as well. What they set
// in the few microseconds between a look at the system's set and a change of it is lost.
// Thread: of the calling thread only; an object belongs to one.

#include "loom/device/cpu_set.h"

#include <optional>

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
  /// Lets the thread run where it could at first, unless somebody else has changed where it may run
  /// since. If the system refuses, it stays restricted, and the next call tries again.
  void restore() noexcept;
  [[nodiscard]] bool restricted() const noexcept { return restricted_; }

 private:
  /// Makes all_ what the thread could run on but for this object. False if the system does not say.
  bool note_all();
  bool restrict_to(CpuSet cpus);
  [[nodiscard]] bool is_own(const CpuSet& now) const;
  [[nodiscard]] bool is_by_cpuset(const CpuSet& now) const;

  const CpuSet::SetAffinity set_;
  bool restricted_ = false;
  CpuSet all_;
  CpuSet chosen_;               ///< what restrict_to() has set, while restricted
  std::optional<CpuSet> main_;  ///< the main thread's then
};

}  // namespace loom
