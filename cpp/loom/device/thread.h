// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Threads of loom: workers of queues and cores of devices. They are started through here, so that
// every one of them is set up alike, named, bound to its device's processors, takes no signals, and
// is stopped between two commands and joined by stop_threads(). Python calls that when its
// interpreter has ended (Py_AtExit), a C++ program calls loom::shutdown() before main() returns.
// For a program that does neither an exit handler does it, registered at the first use: static
// objects that were made later, by a command for example, are destroyed before it runs, beside
// threads that may still use them. A child that is forked while such threads may exist is told so.
// Thread: all functions may be called from any thread.

#include "loom/base/export.h"
#include "loom/base/process_state.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace loom {

namespace detail {

struct ThreadState;

/// What looks at submissions: a trace (command_trace.h), or where errors come from (queue.h).
enum class Observer : unsigned { kTrace = 1, kErrorStacks = 2 };

/// Has submissions tell the observer or not; nothing in a process that ends or was forked.
void set_observed(Observer observer, bool on) noexcept;

}  // namespace detail

/// Runs `body(context)` on a loom thread with what the layer above wants around it (thread-local
/// guards, library settings).
using ThreadWrapper = void (*)(void (*body)(void*), void* context);

/// Sets the wrapper of all loom threads started later. Called once, before the device is used.
LOOM_API void set_thread_wrapper(ThreadWrapper wrapper) noexcept;

/// Called by the device layer when the first device is made, and by the first LoomThread: arms the
/// fork and exit handlers.
LOOM_API void note_device_used();

/// What the exit handler does: no thread starts any more, those that run are stopped after what
/// they are doing and joined; errors that nobody has seen are printed (failure.h). For programs
/// that know earlier that they end. Idempotent.
LOOM_API void stop_threads();

/// True once note_device_used() has been called in this process.
[[nodiscard]] LOOM_API bool device_was_used() noexcept;

/// True on threads that LoomThread started.
[[nodiscard]] LOOM_API bool on_loom_thread() noexcept;

/// A thread that the exit handler or the destructor joins, whichever comes first.
class LOOM_API LoomThread {
 public:
  /// Starts a thread named `name` (15 characters are kept) on `cpus` (empty = anywhere). `stop`
  /// must make `body` return soon, and must not block; it is called at most once. When exiting(),
  /// no thread is started.
  /// Throws: std::system_error when the system refuses.
  LoomThread(const std::string& name, std::vector<int> cpus, std::function<void()> body,
             std::function<void()> stop);
  /// Stops and joins. Requires: not called by the thread itself.
  ~LoomThread();
  LoomThread(const LoomThread&) = delete;
  LoomThread& operator=(const LoomThread&) = delete;

 private:
  std::shared_ptr<detail::ThreadState> state_;
};

}  // namespace loom
