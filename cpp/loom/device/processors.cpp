// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/processors.h"

#include <new>
#include <optional>
#include <utility>

namespace loom {

bool Processors::avoid(int cpu) noexcept {
  try {
    if (!note_all()) return false;
    CpuSet others = all_;
    others.erase(cpu);
    return !others.empty() && restrict_to(std::move(others));
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool Processors::move_to(int cpu) noexcept {
  try {
    return note_all() && all_.contains(cpu) && restrict_to(CpuSet({cpu}));
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool Processors::restrict_to(CpuSet cpus) {
  if (!restricted_) main_ = CpuSet::of_main_thread();
  if (!cpus.apply_to_this_thread(set_)) return false;
  chosen_ = std::move(cpus);
  return restricted_ = true;
}

bool Processors::note_all() {
  std::optional<CpuSet> now = CpuSet::of_this_thread();
  if (!now.has_value()) return false;
  if (restricted_ && is_own(*now)) return true;
  restricted_ = false;
  all_ = *std::move(now);
  return true;
}

bool Processors::is_own(const CpuSet& now) const {
  if (now != chosen_) return is_by_cpuset(now);
  const std::optional<CpuSet> main = CpuSet::of_main_thread();
  return main == main_ || main != now;
}

// A cpuset that lost processors, or got some back, shows as a set that nobody has asked for: the
// part of chosen_ that is in the cpuset, or all of that if none is. Whoever asked for another set
// has it anywhere in the cpuset. So the system is asked for all_, and says how the cpuset cuts
// that.
bool Processors::is_by_cpuset(const CpuSet& now) const {
  if (!all_.apply_to_this_thread(set_)) return false;
  const std::optional<CpuSet> most = CpuSet::of_this_thread();
  bool same = false;
  if (most.has_value()) {
    CpuSet cut = *most;
    for (const int cpu : most->cpus()) {
      if (!chosen_.contains(cpu)) cut.erase(cpu);
    }
    same = *most != all_ && (cut.empty() ? *most : cut) == now;
  }
  (void)now.apply_to_this_thread(set_);
  return same;
}

// A refusal may be for a moment only: the processors of a cpuset may be taken away and given back.
// A thread that gave up would stay where it is for ever.
void Processors::restore() noexcept {
  try {
    if (restricted_ && note_all() && restricted_) restricted_ = !all_.apply_to_this_thread(set_);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the next call tries again
  }
}

}  // namespace loom
