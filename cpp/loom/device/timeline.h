// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A timeline is a counter that only grows: position n is reached when the n-th command of a queue
// has finished. It is all that events, cross-queue waits and the allocator need to know of a queue.
// Thread: one thread advances, any thread asks and waits. Whatever a thread wrote before it
// advanced to n is visible to everyone who has seen n reached (release / acquire).

#include "loom/base/export.h"

#include <atomic>
#include <cstdint>

namespace loom {

class Cores;

/// Called by a host thread with what waits: calls body(context) once. Lets the Python bindings
/// release the GIL wherever a wait comes from.
using WaitWrapper = void (*)(void (*body)(void*), void* context);

/// Set once, before the device is used; null for none.
LOOM_API void set_wait_wrapper(WaitWrapper wrapper) noexcept;

/// Runs the host program's handlers of the signals that have come meanwhile (Ctrl-C), if the
/// calling thread is the one to run them; what they throw ends the wait.
using SignalHandler = void (*)();

/// Set once, before the device is used; null for none.
LOOM_API void set_signal_handler(SignalHandler handler) noexcept;

class LOOM_API Timeline {
 public:
  Timeline() = default;
  /// Host threads that wait help these cores first. Requires: they outlive it.
  explicit Timeline(Cores& cores) : cores_(&cores) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  [[nodiscard]] bool reached(std::uint64_t position) const noexcept {
    return completed_.load(std::memory_order_acquire) >= position;
  }
  [[nodiscard]] std::uint64_t completed() const noexcept {
    return completed_.load(std::memory_order_acquire);
  }

  /// Whether a wait may end before its time by what a signal's handler throws.
  enum class Signals { kLater, kHandled };
  /// How long signals may wait for their handlers at most: a person does not notice it.
  static constexpr std::int64_t kSignalPeriodNs = 50'000'000;

  /// Returns once `position` is reached, or when the process exits: runs blocks (cores.h) and
  /// spins for some times options().spin_ns (less where others want the core), then sleeps, inside
  /// the wait wrapper. Requires: no lock of loom's is held. Throws: loom::Error in a forked child,
  /// if not yet reached: nobody would ever advance; with Signals::kHandled what a handler throws.
  void wait(std::uint64_t position, Signals signals = Signals::kLater) const;

  /// As wait(), but returns as well once `stop` is set and interrupt() has been called after that.
  void wait_unless(std::uint64_t position, const std::atomic<bool>& stop) const;

  /// Wakes the waiters up to `position`. Requires: never less than before; one advancing thread.
  void advance(std::uint64_t position) noexcept;

  /// Makes all waiters look again at their reasons to stop.
  void interrupt() const noexcept;

  /// How many times, in this process, a thread that is not loom's had to ask to wait.
  [[nodiscard]] static std::uint64_t host_waits() noexcept;

 private:
  static constexpr std::uint64_t kNobody = UINT64_MAX;

  static constexpr std::int64_t kForEver = INT64_MAX;

  /// Returns at `deadline_ns` (steady clock), too.
  void sleep_until(std::uint64_t position, const std::atomic<bool>* stop,
                   std::int64_t deadline_ns = kForEver) const;

  Cores* const cores_ = nullptr;
  std::atomic<std::uint64_t> completed_{0};
  // The lowest position that a sleeping or about-to-sleep waiter wants, so that advance() makes a
  // system call only when somebody is to be woken.
  mutable std::atomic<std::uint64_t> wake_at_{kNobody};
  // Futex word: changes with every wake, so that a waiter who looked before cannot miss it.
  mutable std::atomic<std::uint32_t> generation_{0};
};

}  // namespace loom
