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

class LOOM_API Timeline {
 public:
  Timeline() = default;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  [[nodiscard]] bool reached(std::uint64_t position) const noexcept {
    return completed_.load(std::memory_order_acquire) >= position;
  }
  [[nodiscard]] std::uint64_t completed() const noexcept {
    return completed_.load(std::memory_order_acquire);
  }

  /// Returns once `position` is reached: spins for options().spin_ns, then sleeps.
  /// Requires: the GIL is not held.
  void wait(std::uint64_t position) const;

  /// Wakes the waiters up to `position`. Requires: never less than before; one advancing thread.
  void advance(std::uint64_t position) noexcept;

 private:
  std::atomic<std::uint64_t> completed_{0};
  // Number of sleeping or about-to-sleep waiters, so that advance() makes no system call when
  // there are none.
  mutable std::atomic<std::uint32_t> waiters_{0};
  // Futex word: changes with every wake, so that a waiter who saw an old `completed_` cannot miss
  // it.
  mutable std::atomic<std::uint32_t> generation_{0};
};

}  // namespace loom
