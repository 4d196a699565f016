// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An event marks a point of a stream, as in CUDA: recording again moves the mark, an event that was
// never recorded counts as complete, and block() orders another stream after the mark.
// Thread: one event may be used by several threads; each call is atomic.

#include "loom/backend/stream.h"
#include "loom/base/export.h"

#include <memory>

namespace loom {

class QueueEvent;

class LOOM_API Event {
 public:
  /// Only events with timing have an elapsed_time().
  explicit Event(bool enable_timing = false);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Marks everything submitted so far to `stream`, by default the current stream.
  void record();
  void record(const Stream& stream);
  /// Makes later work of `stream`, by default the current stream, wait for the mark.
  void block() const;
  void block(const Stream& stream) const;
  /// True when the mark is reached or there is none.
  [[nodiscard]] bool query() const;
  /// Waits on the host for the mark. Requires: the GIL is not held.
  /// Throws: the first error of a command up to the mark that was not reported yet.
  void synchronize() const;
  /// Milliseconds from this mark to that of `end`.
  /// Throws: loom::Error unless both have timing, are recorded and complete.
  [[nodiscard]] double elapsed_time(const Event& end) const;

  [[nodiscard]] bool recorded() const;
  /// The device of the stream last recorded on, or -1.
  [[nodiscard]] c10::DeviceIndex device_index() const;

 private:
  std::unique_ptr<QueueEvent> event_;
};

}  // namespace loom
