// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A bell in memory that processes share: who waits for others to write or read a ring sleeps beside
// it, and they ring it after each piece. Thread: any.

#include "loom/base/futex.h"
#include "loom/base/shared_futex.h"

#include <atomic>
#include <cstdint>

namespace loom::collectives {

/// Lies in shared memory, zeroed at first.
struct alignas(64) Bell {
  // Sequentially consistent, both: who rings changes `rung`, then looks whether somebody sleeps;
  // who goes to sleep says so, then looks whether `rung` has changed; so one of them sees the
  // other. (A process that dies asleep leaves its count, which costs the others system calls, no
  // more.)
  std::atomic<std::uint32_t> rung{0};
  std::atomic<std::uint32_t> sleepers{0};

  void ring() noexcept {
    rung.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) shared_futex_wake(rung);
  }

  /// How often it has rung. Acquire: what ringers wrote before is visible.
  [[nodiscard]] std::uint32_t heard() const noexcept {
    return rung.load(std::memory_order_acquire);
  }

  /// Returns when it has rung since `heard`: spins for a while, then sleeps for `sleep_ns` at most.
  void wait(std::uint32_t heard, std::int64_t spin_ns, std::int64_t sleep_ns) noexcept {
    if (spin_until([&] { return this->heard() != heard; }, spin_ns)) return;
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (rung.load(std::memory_order_seq_cst) == heard) {
      shared_futex_wait_for(rung, heard, sleep_ns);
    }
    // Relaxed: who still counts this one makes a system call that nobody needs.
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
};

static_assert(sizeof(Bell) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace loom::collectives
