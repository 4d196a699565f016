// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/processors.h"

namespace loom {

// Of the calling thread: 0. More processors than a cpu_set_t names are an error here, and nothing
// is restricted.
bool Processors::avoid(int cpu) noexcept {
  if (!note_all()) return false;
  cpu_set_t others = all_;
  CPU_CLR(cpu, &others);
  return CPU_COUNT(&others) > 0 && restrict_to(others);
}

bool Processors::move_to(int cpu) noexcept {
  if (!note_all() || !CPU_ISSET(cpu, &all_)) return false;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  return restrict_to(only);
}

bool Processors::note_all() noexcept {
  return restricted_ || ::sched_getaffinity(0, sizeof(all_), &all_) == 0;
}

bool Processors::restrict_to(const cpu_set_t& cpus) noexcept {
  if (::sched_setaffinity(0, sizeof(cpus), &cpus) != 0) return false;
  restricted_ = true;
  return true;
}

void Processors::restore() noexcept {
  if (!restricted_) return;
  (void)::sched_setaffinity(0, sizeof(all_), &all_);
  restricted_ = false;
}

}  // namespace loom
