// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/processors.h"

namespace loom {

// Of the calling thread: 0. More processors than a cpu_set_t names are an error here, and nothing
// is restricted.
bool Processors::avoid(int cpu) noexcept {
  if (!restricted_ && ::sched_getaffinity(0, sizeof(all_), &all_) != 0) return false;
  cpu_set_t others = all_;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return false;
  if (::sched_setaffinity(0, sizeof(others), &others) != 0) return false;
  restricted_ = true;
  return true;
}

void Processors::restore() noexcept {
  if (!restricted_) return;
  (void)::sched_setaffinity(0, sizeof(all_), &all_);
  restricted_ = false;
}

}  // namespace loom
