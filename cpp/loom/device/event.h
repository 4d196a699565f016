// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A queue event marks a position in a queue. Its semantics are CUDA's: record() may be repeated and
// replaces the mark; an event never recorded counts as complete; block() and synchronize() refer
// to the mark at the time of the call. Without timing, recording submits nothing. In a captured
// queue an event marks a place in the graph: block() lets a queue join the capture, and nobody can
// wait for it. Thread: one event may be used by several threads, each call is atomic.

#include "loom/base/export.h"
#include "loom/base/mutex.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace loom {

class Queue;

enum class EventTiming { kDisabled, kEnabled };

class LOOM_API QueueEvent {
 public:
  explicit QueueEvent(EventTiming timing = EventTiming::kDisabled);
  ~QueueEvent();
  QueueEvent(const QueueEvent&) = delete;
  QueueEvent& operator=(const QueueEvent&) = delete;

  /// Marks everything submitted to `queue` so far. Throws: as Queue::submit().
  void record(Queue& queue);
  /// Makes later commands of `queue` wait for the mark. For a mark in a capture, `queue` joins it.
  /// Throws: loom::Error when that capture has ended; as Queue::wait_for().
  void block(Queue& queue) const;
  /// True when the mark is reached or there is none. Throws: loom::Error for a mark in a capture.
  [[nodiscard]] bool query() const;
  /// Waits on the host for the mark.
  /// Throws: what a command up to the mark threw, once; loom::Error for a mark in a capture.
  void synchronize() const;
  /// Nanoseconds from this mark to that of `end`, as the workers reached them.
  /// Throws: loom::Error unless both were created with timing, recorded, and are complete.
  [[nodiscard]] std::int64_t elapsed_ns(const QueueEvent& end) const;

  [[nodiscard]] bool recorded() const;
  /// The device of the queue last recorded on, or -1.
  [[nodiscard]] int device() const;

 private:
  // Nanoseconds of the steady clock. Written by the command before the timeline reaches the mark,
  // read after: relaxed.
  using Timestamp = std::atomic<std::int64_t>;
  struct Mark {
    Queue* queue = nullptr;  ///< null = never recorded
    std::uint64_t position = 0;
    // Shared with the command that stores it, so that an event may be re-recorded or destroyed
    // while that is queued.
    std::shared_ptr<Timestamp> time;
    std::uint64_t capture = 0;  ///< id of the graph that the queue was captured in, or 0

    void check_not_captured(const char* api) const;
    [[nodiscard]] bool complete() const;
  };

  [[nodiscard]] Mark mark() const;
  [[nodiscard]] std::int64_t completion_ns(const char* role) const;

  const EventTiming timing_;
  mutable Mutex mutex_;
  Mark mark_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom
