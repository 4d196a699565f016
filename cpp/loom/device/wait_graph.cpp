// SPDX-License-Identifier: BSD-3-Clause
// Compiled with LOOM_LOCK_CHECKS only.
#include "loom/device/wait_graph.h"

#include "loom/base/lock_checks.h"
#include "loom/base/process_state.h"
#include "loom/device/queue.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
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

/// The waits of one queue, by the commands that wait.
using Waits = std::deque<Wait>;

struct Graph {
  std::mutex mutex;
  std::map<const Timeline*, Waits> of;  ///< by the queue's timeline
};

// Leaked: queues go while static objects are destroyed.
Graph& graph() {
  static auto* const instance = new Graph;
  return *instance;
}

/// What must be reached, and the wait because of which.
struct Need {
  std::uint64_t position;
  const Wait* cause;
};

/// Whether `wait` must be over before it can be; `path` is why. Each wait is looked at once.
bool closes_circle(const Graph& known, const Wait& wait, std::vector<Wait>& path) {
  std::map<const Timeline*, Need> needs{{wait.other, {wait.position, nullptr}}};
  std::map<const Timeline*, std::size_t> looked_at;
  std::vector<const Timeline*> left{wait.other};
  const Timeline* const own = &wait.queue->timeline();
  while (!left.empty()) {
    const Timeline* const timeline = left.back();
    left.pop_back();
    const std::uint64_t position = needs.at(timeline).position;
    if (timeline == own && position >= wait.own) {
      for (const Timeline* at = own; path.size() < needs.size();) {
        const Wait* const cause = needs.at(at).cause;
        if (cause == nullptr) break;
        path.insert(path.begin(), *cause);
        at = &cause->queue->timeline();
      }
      return true;
    }
    const auto found = known.of.find(timeline);
    if (found == known.of.end()) continue;
    const Waits& waits = found->second;
    for (std::size_t& next = looked_at[timeline];
         next < waits.size() && waits[next].own <= position; ++next) {
      const Wait& each = waits[next];
      if (each.over()) continue;
      Need& need = needs.try_emplace(each.other, Need{0, nullptr}).first->second;
      if (need.position >= each.position) continue;
      need = {each.position, &each};
      left.push_back(each.other);
    }
  }
  return false;
}

/// Adds the wait, or makes one longer that is there.
void insert(Graph& known, const Wait& wait) {
  Waits& waits = known.of[&wait.queue->timeline()];
  while (!waits.empty() && waits.front().over()) waits.pop_front();
  auto place = waits.end();
  while (place != waits.begin() && std::prev(place)->own >= wait.own) {
    --place;
    if (place->own == wait.own && place->other == wait.other) {
      place->position = std::max(place->position, wait.position);
      return;
    }
  }
  waits.insert(place, wait);
}

std::string name_of(const Queue& queue) {
  const QueueId& id = queue.id();
  return "queue " + std::to_string(id.index) + " of device " + std::to_string(id.device);
}

std::string describe(const Graph& known, const Wait& wait) {
  const auto found = known.of.find(wait.other);
  const bool is_known = found != known.of.end() && !found->second.empty();
  return "\n  command " + std::to_string(wait.own) + " of " + name_of(*wait.queue) +
         " waits for command " + std::to_string(wait.position) + " of " +
         (is_known ? name_of(*found->second.front().queue) : "another queue");
}

}  // namespace

void add(const Queue& queue, std::uint64_t own, const Timeline& other,
         std::uint64_t position) noexcept {
  if (exiting() || in_bad_fork()) return;  // what waits now is let go, or is not there
  Graph& known = graph();
  const std::lock_guard lock(known.mutex);
  const Wait wait{&queue, own, &other, position};
  if (wait.over()) return;
  try {
    insert(known, wait);
    std::vector<Wait> path;
    if (!closes_circle(known, wait, path)) return;
    std::string text = "queues wait for each other in a circle" + describe(known, wait);
    for (const Wait& each : path) text += describe(known, each);
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
  known.of.erase(&queue.timeline());
}

}  // namespace loom::wait_graph
