// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sleeping on a 32-bit word in memory that several processes have mapped; futex.h has the rest, and
// the same for memory of this process alone. Thread: any.

#include "loom/base/lock_checks.h"

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace loom {

/// Sleeps while `word` is `expected`, for `limit_ns` at most; returns at a wake, at a signal, or at
/// once if it is not. Callers loop.
inline void shared_futex_wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                                  std::int64_t limit_ns) noexcept {
  constexpr std::int64_t kSecondNs = 1'000'000'000;
  if (limit_ns <= 0) return;
  lock_checks::waits("a futex");
  const timespec limit{limit_ns / kSecondNs, limit_ns % kSecondNs};
  ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT, expected, &limit,
            nullptr, 0);
}

/// Wakes all sleepers of `word`.
inline void shared_futex_wake(const std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

}  // namespace loom
