// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/held_memory.h"

#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/device/unheld_submissions.h"

#include <cstdint>

namespace loom {

std::atomic<std::size_t> HeldMemory::total_{0};

void HeldMemory::wait_for_room(Queue& queue) {
  if (on_loom_thread() || queue.captured() || UnheldSubmissions::active()) return;
  const std::uint64_t submitted = queue.seal();
  while (total() >= kMostBytes && !exiting()) {
    const std::uint64_t done = queue.timeline().completed();
    if (done >= submitted) return;
    // Half of what is queued: the worker has work while the host comes back.
    queue.timeline().wait(done + (submitted - done + 1) / 2, Timeline::Signals::kHandled);
  }
}

}  // namespace loom
