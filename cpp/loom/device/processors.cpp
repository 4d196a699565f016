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
    if (others.empty() || !others.apply_to_this_thread(set_)) return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return restricted_ = true;
}

bool Processors::move_to(int cpu) noexcept {
  try {
    if (!note_all() || !all_.contains(cpu)) return false;
    if (!CpuSet({cpu}).apply_to_this_thread(set_)) return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return restricted_ = true;
}

bool Processors::note_all() {
  if (restricted_) return true;
  std::optional<CpuSet> all = CpuSet::of_this_thread();
  if (all.has_value()) all_ = *std::move(all);
  return all.has_value();
}

// A refusal may be for a moment only: the processors of a cpuset may be taken away and given back.
// A thread that gave up would stay where it is for ever.
void Processors::restore() noexcept {
  if (restricted_) restricted_ = !all_.apply_to_this_thread(set_);
}

}  // namespace loom
