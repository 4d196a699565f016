// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Threads of loom: workers of queues and cores of devices. They are started through here, so that
// every one of them is set up alike, named, bound to its device's processors, and gone before
// static destruction begins: an exit handler stops them between two commands and joins them.

#include "loom/base/export.h"

#include <functional>
#include <string>
#include <vector>

namespace loom {

/// Runs `body(context)` on a loom thread with what the layer above wants around it (thread-local
/// guards, library settings).
using ThreadWrapper = void (*)(void (*body)(void*), void* context);

/// Sets the wrapper of all loom threads started later. Called once, before the device is used.
void set_thread_wrapper(ThreadWrapper wrapper) noexcept;

/// True after the process has begun to exit: threads are stopped, nothing submitted runs.
[[nodiscard]] LOOM_API bool exiting() noexcept;

/// True in a child that was forked after the parent had used a device; its loom has no threads.
[[nodiscard]] LOOM_API bool in_bad_fork() noexcept;

/// Throws loom::Error when in_bad_fork(), with what to do instead.
LOOM_API void check_not_forked();

/// Called by the device layer when the first device is made: arms the fork and exit handlers.
void note_device_used() noexcept;

/// Starts a thread named `name` (15 characters are kept) on `cpus` (empty = anywhere).
/// `stop` is called by the exit handler, must make `body` return soon, and must not block.
/// The thread is joined by the exit handler or by join_thread().
class LoomThread {
 public:
  LoomThread(std::string name, std::vector<int> cpus, std::function<void()> body,
             std::function<void()> stop);
  /// Stops and joins. Requires: not called by the thread itself.
  ~LoomThread();
  LoomThread(const LoomThread&) = delete;
  LoomThread& operator=(const LoomThread&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace loom
