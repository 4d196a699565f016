// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether this process runs, is about to end, or was forked while loom was in use: one word, which
// every lock and every submission looks at. device/thread.h sets it.
// Thread: all functions may be called from any thread.

#include "loom/base/export.h"

#include <atomic>

namespace loom {

namespace detail {

enum class ProcessState : int { kRunning, kTraced, kExiting, kForked };

// Changes between kRunning and kTraced (running, and submissions are observed), and leaves them
// once, for kExiting or kForked. One word for all, so that a submission looks at one.
// Relaxed: a thread that must not sleep through the change is woken by a futex after it, every
// other one may see it a little later; a forked child has one thread, the one that wrote kForked.
extern LOOM_API std::atomic<ProcessState> g_process_state;

[[nodiscard]] inline ProcessState process_state() noexcept {
  return g_process_state.load(std::memory_order_relaxed);
}

[[noreturn]] LOOM_API void throw_forked();

}  // namespace detail

/// True after the process has begun to exit: threads are stopped, nothing submitted runs.
[[nodiscard]] inline bool exiting() noexcept {
  return detail::process_state() == detail::ProcessState::kExiting;
}

/// True in a child that was forked after the parent had used a device; its loom has no threads.
[[nodiscard]] inline bool in_bad_fork() noexcept {
  return detail::process_state() == detail::ProcessState::kForked;
}

/// Throws loom::Error when in_bad_fork(), with what to do instead.
inline void check_not_forked() {
  if (in_bad_fork()) [[unlikely]] {
    detail::throw_forked();
  }
}

}  // namespace loom
