// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where the threads that share a device's cores were last. All of it is hints: relaxed, a processor
// that is out of date costs time, nothing else.
// Thread: any.

#include "loom/base/futex.h"

#include <atomic>
#include <cstdint>
#include <sched.h>

namespace loom::detail {

class Whereabouts {
 public:
  /// The calling thread submits work.
  void note_submitter() noexcept { note(submitter_, ::sched_getcpu()); }
  /// The calling thread, on `cpu`, publishes a grid.
  void note_publisher(int cpu) noexcept { note(publisher_, cpu); }
  /// The calling thread is a host that looks for blocks. On the publisher's processor it does so in
  /// vain: the publisher runs, and the system leaves both there for milliseconds.
  void note_host() noexcept { note(host_, ::sched_getcpu()); }
  /// The calling thread has spun to the end of its time; `calm`: nobody else wanted its processor.
  void note_spin(std::int64_t now, bool calm) noexcept {
    calm_.store(::sched_getcpu(), std::memory_order_relaxed);
    calm_ns_.store(calm ? now : 0, std::memory_order_relaxed);
  }

  [[nodiscard]] bool submitter_on(int cpu) const noexcept { return is(submitter_, cpu); }
  [[nodiscard]] bool publisher_on(int cpu) const noexcept { return is(publisher_, cpu); }
  [[nodiscard]] bool host_on(int cpu) const noexcept { return is(host_, cpu); }

  /// A processor that was calm just now, or -1.
  [[nodiscard]] int calm() const noexcept {
    constexpr std::int64_t kCalmNs = 1'000'000;
    const bool recent = now_ns() - calm_ns_.load(std::memory_order_relaxed) <= kCalmNs;
    return recent ? calm_.load(std::memory_order_relaxed) : -1;
  }

 private:
  static void note(std::atomic<int>& where, int cpu) noexcept {
    // Looks alone leave the line to those who share it.
    if (!is(where, cpu)) where.store(cpu, std::memory_order_relaxed);
  }
  [[nodiscard]] static bool is(const std::atomic<int>& where, int cpu) noexcept {
    return where.load(std::memory_order_relaxed) == cpu;
  }

  // Seldom written, so that who submits finds them in its cache.
  alignas(64) std::atomic<int> submitter_{-1};
  std::atomic<int> publisher_{-1};
  std::atomic<int> host_{-1};
  // Written at the end of every spin.
  alignas(64) std::atomic<std::int64_t> calm_ns_{0};
  std::atomic<int> calm_{-1};
};

}  // namespace loom::detail
