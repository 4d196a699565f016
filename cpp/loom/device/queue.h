// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A queue runs commands in the order of their submission, one after the other, on a worker thread
// of its own that starts with the first command. Position n is the n-th command ever submitted;
// the queue's timeline reaches n when that command has finished and its callable is destroyed.
// Thread: any thread may submit, ask and wait. Commands of one thread keep their order.
// Commands that are still queued when the process exits are not run.

#include "loom/base/export.h"
#include "loom/device/command_buffer.h"
#include "loom/device/timeline.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace loom {

class Cores;

/// What names a queue among all queues of the process.
struct QueueId {
  int device = 0;
  int priority = 0;  ///< 0 = normal, -1 = high (as in CUDA, a lower number goes first)
  int index = 0;     ///< the device's default queue has index 0 and priority 0
  friend bool operator==(const QueueId&, const QueueId&) = default;
};

class LOOM_API Queue {
 public:
  /// Priorities are kHighestPriority ... 0.
  static constexpr int kHighestPriority = -1;

  Queue(QueueId id, Cores& cores);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Queues `callable` (called once, with no arguments, then destroyed, both on the worker) and
  /// returns its position. `name` must outlive the command (a literal or an interned string): it
  /// is the operator's name in errors and profiles. A callable may have a member
  /// `void accesses(AccessList&) const` that lists the device memory it reads and writes.
  /// If it throws, the first exception is kept for synchronize(); later commands run all the same.
  /// With LOOM_LAUNCH_BLOCKING=1 it returns after the command has run, and throws its exception.
  /// A caller that is far ahead (kMaxPending commands) is held until the worker has caught up.
  /// Throws: loom::Error in a forked child of a process that had used the device.
  template <class Callable>
  std::uint64_t submit(const char* name, Callable&& callable);

  /// Waits until everything submitted so far has run.
  /// Throws: the first exception of a command since the last throw, once.
  void synchronize();

  /// As synchronize() for the commands up to `position` only.
  void synchronize(std::uint64_t position);

  /// Makes later commands of this queue wait until `timeline` reaches `position`. Does not block
  /// the caller. Requires: `timeline` outlives the wait.
  void wait_for(const Timeline& timeline, std::uint64_t position);

  /// True when everything submitted so far has run. Throws nothing: errors wait for synchronize().
  [[nodiscard]] bool idle() const noexcept { return timeline_.reached(submitted()); }

  /// The position of the last command submitted.
  [[nodiscard]] std::uint64_t submitted() const noexcept {
    return submitted_.load(std::memory_order_acquire);
  }
  [[nodiscard]] const Timeline& timeline() const noexcept { return timeline_; }
  [[nodiscard]] const QueueId& id() const noexcept { return id_; }
  /// The cores that this queue's kernels run on.
  [[nodiscard]] Cores& cores() const noexcept { return cores_; }

  /// The queue whose worker the calling thread is, or null.
  [[nodiscard]] static Queue* current() noexcept;

  /// How many times, in this process, a host thread has waited for a queue.
  [[nodiscard]] static std::uint64_t host_waits() noexcept;

 private:
  struct Worker;
  // See queue.cpp; the fast path of submit() is inline below.
  const QueueId id_;
  Cores& cores_;
  Timeline timeline_;
  std::atomic<std::uint64_t> submitted_{0};
  std::unique_ptr<Worker> worker_;
};

}  // namespace loom
