// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A graph of commands: what a queue was asked to run while it was captured, kept, and run again as
// often as wanted. While a queue is captured, submit() appends to the graph instead of handing the
// command to the worker. A queue that waits for an event recorded in the capture joins it; the
// commands of all joined queues are kept in the order of their submission, which is an order that
// their events allow. Whatever would have to wait for captured work is refused, and makes the
// capture invalid: that work runs later, if at all.
// Commands must be able to run more than once, one after the other, on the worker of any queue.
// Thread: any; run() is called by workers.

#include "loom/base/export.h"
#include "loom/base/mutex.h"
#include "loom/device/command_buffer.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace loom {

class Queue;

/// The name of commands that run a graph. Profiles show the graph's commands instead.
inline constexpr const char* kReplayName = "graph_replay";

class LOOM_API CommandGraph : public std::enable_shared_from_this<CommandGraph> {
 public:
  CommandGraph();
  /// Requires: the capture has ended or was never begun.
  virtual ~CommandGraph();
  CommandGraph(const CommandGraph&) = delete;
  CommandGraph& operator=(const CommandGraph&) = delete;

  /// From now on commands of `queue` go to this graph. Called once.
  /// Throws: loom::Error when the queue is captured already, and in a forked child.
  void begin_capture(Queue& queue);

  /// Captures `queue` too, from now on; nothing if it is already.
  /// Throws: loom::Error when another capture has the queue, it is of another device, or the
  /// capture has ended.
  void join(Queue& queue);

  /// All queues submit to their workers again. Called once, after begin_capture().
  void end_capture() noexcept;

  /// Marks the capture as one that lacks something; the first reason is kept.
  void invalidate(std::string reason) noexcept;

  /// Unique in the process, never 0.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// Why the capture is invalid, or nothing.
  [[nodiscard]] std::string invalid_reason() const;
  /// True on the thread that has begun the capture.
  [[nodiscard]] bool begun_by_this_thread() const noexcept {
    return begun_by_ == std::this_thread::get_id();
  }

  /// Runs all commands in order on the calling worker, each as its queue would: one that throws
  /// keeps only those from running that read what it should have written. When the process exits,
  /// the rest is left.
  /// Requires: the capture has ended, and nobody runs this graph at the same time.
  void run() noexcept;

  /// Commands captured. Requires: the capture has ended.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Calls `visit(Command)` for each command. Requires: the capture has ended.
  template <class Visit>
  void for_each(Visit&& visit) {
    commands_.for_each(std::forward<Visit>(visit));
  }

 private:
  friend class Queue;
  /// By a queue that is about to be captured, under its mutex, so that the end of the capture waits
  /// for it. Throws: loom::Error when the capture has ended.
  void admit(Queue& queue);
  /// By Queue::submit(), under the queue's mutex. Tells the callable, if it has a member
  /// `void note_captured() noexcept`.
  template <class Callable>
  void append(const char* name, Callable&& callable, std::string stack) {
    MutexLock lock(mutex_);
    if constexpr (requires { callable.note_captured(); }) callable.note_captured();
    if (!stack.empty()) stacks_.emplace(size_ + 1, std::move(stack));
    commands_.append(name, std::forward<Callable>(callable));
    ++size_;
  }

  const std::uint64_t id_;
  std::thread::id begun_by_;
  int device_ = 0;

  mutable Mutex mutex_;
  // Written under the mutex while queues are captured, read without it afterwards.
  CommandBuffer commands_;
  std::size_t size_ = 0;
  std::map<std::size_t, std::string> stacks_;  ///< where commands were submitted, by their number
  std::vector<Queue*> queues_ LOOM_GUARDED_BY(mutex_);
  bool open_ LOOM_GUARDED_BY(mutex_) = false;
  std::string invalid_reason_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom
