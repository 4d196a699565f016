// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Streams: each is one queue of a device. Every device has a default stream (id 0) and a pool of
// 32 streams a priority, handed out round robin. The current stream is a property of each thread
// and device, and is the default stream until it is set. Work on one stream runs in order; work on
// different streams is ordered by events only.
// Thread: any. Streams are values and may be copied freely; they are never destroyed.

#include "loom/base/export.h"

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <functional>
#include <utility>

namespace loom {

class Queue;

/// A c10::Stream that is known to be one of loom's.
class LOOM_API Stream {
 public:
  /// Throws: c10::Error for a stream of another backend, of a device that does not exist, or with
  /// an id that loom did not give out.
  explicit Stream(c10::Stream stream);

  [[nodiscard]] Queue& queue() const noexcept { return *queue_; }

  /// True when everything submitted so far has run.
  [[nodiscard]] bool query() const noexcept;
  /// Waits until everything submitted so far has run. Requires: the GIL is not held.
  /// Throws: the first error of a command that was not reported yet.
  void synchronize() const;
  /// 0 = normal, -1 = high.
  [[nodiscard]] int priority() const noexcept;

  [[nodiscard]] c10::Stream unwrap() const noexcept { return stream_; }
  operator c10::Stream() const noexcept { return stream_; }
  [[nodiscard]] c10::StreamId id() const noexcept { return stream_.id(); }
  [[nodiscard]] c10::Device device() const noexcept { return stream_.device(); }
  [[nodiscard]] c10::DeviceIndex device_index() const noexcept { return stream_.device_index(); }

  /// Lowest and highest priority, {0, -1}; a lower number goes first.
  [[nodiscard]] static std::pair<int, int> priority_range() noexcept;

  friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.queue_ == b.queue_; }
  friend bool operator!=(const Stream& a, const Stream& b) noexcept { return !(a == b); }

 private:
  c10::Stream stream_;
  Queue* queue_;
};

/// The queue behind a stream. Throws: as Stream's constructor.
[[nodiscard]] LOOM_API Queue& queue_of(const c10::Stream& stream);

/// The stream of a queue of one of loom's devices.
[[nodiscard]] LOOM_API Stream stream_of(const Queue& queue);

/// The queue of the current stream of `device` (-1 = the current device). This is on the way of
/// every launch: a thread-local load once the thread has used the device.
/// Throws: c10::Error when there is no such device; loom::Error as device().
[[nodiscard]] LOOM_API Queue& current_queue(c10::DeviceIndex device = -1);

/// The streams of `device`, -1 = the current one. Throw: c10::Error when there is no such device.
[[nodiscard]] LOOM_API Stream current_stream(c10::DeviceIndex device = -1);
[[nodiscard]] LOOM_API Stream default_stream(c10::DeviceIndex device = -1);

/// The calling thread's stream of `device` in a child of fork(), where it can do nothing.
[[nodiscard]] c10::Stream inherited_stream(c10::DeviceIndex device) noexcept;

/// The next stream of the pool. Priorities outside the range are clamped.
[[nodiscard]] LOOM_API Stream stream_from_pool(int priority, c10::DeviceIndex device = -1);
[[nodiscard]] LOOM_API Stream stream_from_pool(bool high_priority = false,
                                               c10::DeviceIndex device = -1);

/// Makes `stream` the current stream of its device in this thread; the current device stays.
LOOM_API void set_current_stream(const Stream& stream) noexcept;

/// For a scope, makes a stream current and its device the current device.
class LOOM_API StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  [[nodiscard]] const Stream& original_stream() const noexcept { return original_stream_; }

 private:
  c10::DeviceIndex original_device_;
  Stream original_stream_;
};

}  // namespace loom

template <>
struct std::hash<loom::Stream> {
  std::size_t operator()(const loom::Stream& stream) const noexcept {
    return std::hash<c10::Stream>{}(stream.unwrap());
  }
};
