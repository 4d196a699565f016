// SPDX-License-Identifier: BSD-3-Clause
// Waits of one queue for another.
#include "loom/device/open_wait.h"
#include "loom/device/queue.h"
#include "loom/device/wait_graph.h"

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <utility>

namespace loom {

OpenWait* OpenWait::of(OpenCommand* open) noexcept {
  return open != nullptr && typeid(*open) == typeid(OpenWait) ? static_cast<OpenWait*>(open)
                                                              : nullptr;
}

void Queue::wait_for(const Timeline& timeline, std::uint64_t position) {
  if (&timeline == &timeline_) return;
  check_not_captured(
      "A wait for an event",
      "the event was not recorded in the capture; record it in a captured stream, or "
      "wait for it before the capture begins");
  if (timeline.reached(position)) return;
  const bool longer = with_open([&](OpenCommand* open) {
    OpenWait* const last = OpenWait::of(open);
    if (last == nullptr || &last->timeline != &timeline) return false;
    last->position = std::max(last->position, position);
    wait_graph::add(*this, submitted(), timeline, position);
    return true;
  });
  if (longer) return;
  auto wait = std::make_unique<OpenWait>(timeline, position);
  OpenWait& open = *wait;
  // While the process exits commands are dropped, and there is nothing to run.
  const auto run = [this, &open] {
    for (;;) {
      std::uint64_t until;
      {
        MutexLock lock(submit_mutex_);
        until = open.position;
        // Closed under the lock, so that nobody makes it longer between the look and that.
        if (open.timeline.reached(until) || stopping()) {
          if (open_.load(std::memory_order_relaxed) == &open) close_open();
          return;
        }
      }
      block_on(open.timeline, until);
    }
  };
  const std::uint64_t own = enqueue("wait_for", [wait = std::move(wait), run] { run(); }, &open);
  wait_graph::add(*this, own, timeline, position);
}

void wait_for_all_of(Queue& queue, Queue& other) {
  std::uint64_t position = 0;
  const bool waits = other.with_open([&](OpenCommand* open) {
    const OpenWait* const last = OpenWait::of(open);
    position = other.submitted() - 1;
    return last != nullptr && &last->timeline == &queue.timeline();
  });
  queue.wait_for(other.timeline(), waits ? position : other.seal());
}

void Queue::block_on(const Timeline& timeline, std::uint64_t position) {
  {
    MutexLock lock(blocked_mutex_);
    blocked_on_ = &timeline;
  }
  timeline.wait_unless(position, stop_);
  MutexLock lock(blocked_mutex_);
  blocked_on_ = nullptr;
}

}  // namespace loom
