// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sleeping on a 32-bit word (Linux futex, private to the process), and polite spinning before it.
// A futex only sleeps and wakes; what memory becomes visible is said by the atomics around it.
// Thread: any.

#include "loom/base/lock_checks.h"

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace loom {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// Sleeps while `word` is `expected`; returns at a wake, at a signal, or at once if it is not.
/// Callers loop.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  lock_checks::waits("a futex");
  ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected,
            nullptr, nullptr, 0);
}

/// As futex_wait(), for `limit_ns` at most.
inline void futex_wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                           std::int64_t limit_ns) noexcept {
  constexpr std::int64_t kSecondNs = 1'000'000'000;
  if (limit_ns <= 0) return;
  lock_checks::waits("a futex");
  const timespec limit{limit_ns / kSecondNs, limit_ns % kSecondNs};
  ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected,
            &limit, nullptr, 0);
}

/// Wakes up to `count` sleepers of `word`.
inline void futex_wake(const std::atomic<std::uint32_t>& word, int count = INT_MAX) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count,
            nullptr, nullptr, 0);
}

/// Tells the core that this is a spin loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

[[nodiscard]] inline std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// How long a thread that spins keeps its core to itself.
inline constexpr std::int64_t kRudeNs = 3'000;
/// Where offers of the core are taken a thread spins so many times less before it sleeps.
inline constexpr std::int64_t kSpinHaste = 10;

/// Offers of the calling thread's core to others. Whoever takes one may keep the core until the
/// system's next tick, milliseconds later, beside cores that are idle meanwhile: the system does
/// not move a thread that is neither running nor asleep. So for a while no more are made there.
class CoreOffers {
 public:
  /// Whether one was taken for long on this core, not long ago.
  [[nodiscard]] static bool taken(std::int64_t now) noexcept {
    if (now >= latest_) return false;
    const int cpu = ::sched_getcpu();
    const Taken& last = of(cpu);
    return last.cpu == cpu && now < last.until;
  }

  static void make(std::int64_t now) noexcept {
    constexpr std::int64_t kLongNs = 500'000, kTakenNs = 100'000'000;
    const int cpu = ::sched_getcpu();
    std::this_thread::yield();
    const std::int64_t end = now_ns();
    if (end - now < kLongNs) return;
    latest_ = end + kTakenNs;
    of(cpu) = {cpu, latest_};
  }

  /// They are made on this core again: it was no stranger who took it.
  static void forgive() noexcept { of(::sched_getcpu()).until = 0; }

 private:
  struct Taken {
    int cpu;
    std::int64_t until;
  };
  // A core that takes another one's place here makes the thread offer that one once more.
  [[nodiscard]] static Taken& of(int cpu) noexcept {
    return taken_[static_cast<unsigned>(cpu) % taken_.size()];
  }

  inline static constinit thread_local std::array<Taken, 4> taken_{};
  inline static constinit thread_local std::int64_t latest_ = 0;
};

/// Spins until `done()` or for about `limit_ns`; returns whether it is done. After the first few
/// microseconds it offers its core to others between looks: where threads outnumber cores, the one
/// that is waited for may be among them. (Measured on two busy cores: without the offers a command
/// starts 35 us after it was submitted, with them 9.) Where no offers are made (CoreOffers) the
/// limit is `taken_limit_ns` if that is less: asleep, the thread gives its core away and gets one
/// when it is woken.
template <class Done>
bool spin_until(Done&& done, std::int64_t limit_ns, std::int64_t taken_limit_ns) {
  constexpr int kLooksPerClock = 32;
  if (done()) return true;
  if (limit_ns <= 0) return false;
  const std::int64_t start = now_ns();
  for (;;) {
    for (int i = 0; i < kLooksPerClock; ++i) {
      cpu_relax();
      if (done()) return true;
    }
    const std::int64_t now = now_ns();
    const std::int64_t elapsed = now - start;
    if (elapsed > limit_ns) return false;
    if (elapsed <= kRudeNs) continue;
    if (!CoreOffers::taken(now)) {
      CoreOffers::make(now);
    } else if (elapsed > taken_limit_ns) {
      return false;
    }
  }
}

template <class Done>
bool spin_until(Done&& done, std::int64_t limit_ns) {
  return spin_until(std::forward<Done>(done), limit_ns, limit_ns / kSpinHaste);
}

}  // namespace loom
