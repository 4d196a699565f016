// SPDX-License-Identifier: BSD-3-Clause
// Compiled with LOOM_LOCK_CHECKS only.
#include "loom/device/wait_graph.h"

#include "loom/base/lock_checks.h"
#include "loom/base/process_state.h"
#include "loom/device/queue.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <vector>

namespace loom::wait_graph {
namespace {

struct Wait {
  const Queue* queue;
  std::uint64_t own;  ///< the position of the command that waits
  const Timeline* other;
  std::uint64_t position;

  /// Waits that are over are left in the list until the next one comes.
  [[nodiscard]] bool over() const noexcept {
    return queue->timeline().reached(own) || other->reached(position);
  }
};

struct Graph {
  std::mutex mutex;
  std::vector<Wait> waits;
};

// Leaked: queues go while static objects are destroyed.
Graph& graph() {
  static auto* const instance = new Graph;
  return *instance;
}

/// Whether `end` must be over before `timeline` reaches `position`; `path` is why.
bool depends(const std::vector<Wait>& waits, const Timeline& timeline, std::uint64_t position,
             const Wait& end, std::vector<Wait>& path) {
  if (&timeline == &end.queue->timeline() && position >= end.own) return true;
  for (const Wait& each : waits) {
    if (&each.queue->timeline() != &timeline || each.own > position) continue;
    const bool seen = std::any_of(path.begin(), path.end(), [&](const Wait& one) {
      return one.queue == each.queue && one.own == each.own && one.other == each.other &&
             one.position == each.position;
    });
    if (seen) continue;
    path.push_back(each);
    if (depends(waits, *each.other, each.position, end, path)) return true;
    path.pop_back();
  }
  return false;
}

std::string name_of(const Queue& queue) {
  const QueueId& id = queue.id();
  return "queue " + std::to_string(id.index) + " of device " + std::to_string(id.device);
}

const Queue* owner_of(const std::vector<Wait>& waits, const Timeline& timeline) {
  for (const Wait& each : waits) {
    if (&each.queue->timeline() == &timeline) return each.queue;
  }
  return nullptr;
}

std::string describe(const std::vector<Wait>& waits, const Wait& wait) {
  const Queue* const owner = owner_of(waits, *wait.other);
  std::ostringstream text;
  text << "\n  command " << wait.own << " of " << name_of(*wait.queue) << " waits for command "
       << wait.position << " of " << (owner != nullptr ? name_of(*owner) : "another queue");
  return text.str();
}

}  // namespace

void add(const Queue& queue, std::uint64_t own, const Timeline& other,
         std::uint64_t position) noexcept {
  if (exiting() || in_bad_fork()) return;  // what waits now is let go, or is not there
  Graph& known = graph();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.waits, [](const Wait& each) { return each.over(); });
  const Wait wait{&queue, own, &other, position};
  if (wait.over()) return;
  std::erase_if(known.waits, [&](const Wait& each) {
    return each.queue == &queue && each.own == own && each.other == &other &&
           each.position <= position;  // it has become longer
  });
  try {
    known.waits.push_back(wait);
    std::vector<Wait> path;
    if (!depends(known.waits, other, position, wait, path)) return;
    std::string text = "queues wait for each other in a circle" + describe(known.waits, wait);
    for (const Wait& each : path) text += describe(known.waits, each);
    lock_checks::report(text.c_str());
  } catch (const std::bad_alloc&) {
    // Tests have memory run out; a circle is seen at another time.
  }
}

void waits(const Timeline& other, std::uint64_t position) noexcept {
  const Queue* const queue = Queue::current();
  if (queue != nullptr) add(*queue, queue->timeline().completed() + 1, other, position);
}

void forget(const Queue& queue) noexcept {
  if (in_bad_fork()) return;
  Graph& known = graph();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.waits, [&](const Wait& each) { return each.queue == &queue; });
}

}  // namespace loom::wait_graph
