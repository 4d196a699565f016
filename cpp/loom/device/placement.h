// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// On which processors the threads that share a device's cores are, and who makes room for whom.
// The system leaves two threads on one processor beside an idle one for milliseconds when neither
// sleeps, and grids take microseconds. On two processors of an Intel Xeon everything here together
// made chains of pointwise operators over 1e4 to 1e6 elements 1.27 times as fast, and beside a busy
// process training steps 1.18 times and the inference of small models 1.3 times.
// LOOM_PLACEMENT=0 leaves it all to the system.
// All notes are hints: relaxed, a processor that is out of date costs time, nothing else.
// Thread: any; a Helper belongs to one thread.

#include "loom/device/processors.h"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace loom::detail {

/// Measured on two processors; what matters is their order of magnitude.
struct PlacementLimits {
  /// A helper on its publisher's processor that must not go elsewhere rests so long before it looks
  /// where it is, and so often for one grid; then it helps, as the publisher may be asleep. A rest
  /// that every grid ended would cost the publisher as much as the help.
  static constexpr std::chrono::microseconds kRest{250};
  static constexpr int kMostRests = 3;
  /// Nobody else wants the processor of a helper whose spin took less than so many times what it
  /// should; that counts for so long.
  static constexpr std::int64_t kCalmSpins = 3;
  static constexpr std::int64_t kCalmNs = 1'000'000;
  /// A worker moves away from a host no more often.
  static constexpr std::int64_t kMoveNs = 100'000'000;
};

class Placement {
 public:
  explicit Placement(bool on) noexcept : on_(on) {}

  /// The calling thread submits work.
  void note_submitter() noexcept;
  /// The calling thread, on `cpu`, publishes a grid.
  void note_publisher(int cpu) noexcept { note(publisher_, cpu); }
  /// The calling thread is a host that looks for blocks. On the publisher's processor it does so in
  /// vain: the publisher runs, and the system leaves both there for milliseconds.
  void note_host() noexcept;
  /// The calling thread has spun from `start` to `end`, the limit of its time.
  void note_spin(std::int64_t start, std::int64_t end, std::int64_t limit_ns) noexcept;

  [[nodiscard]] bool host_on(int cpu) const noexcept { return on_ && is(host_, cpu); }
  /// Whether the caller is on `cpu`, and should keep out of the way of who is there.
  [[nodiscard]] bool in_the_way(int cpu) const noexcept;

  /// On a worker: lets the thread that submits have the core that both are on, for as long as it
  /// has more to come. Asleep, the worker would be woken for every command, and take the core.
  void favour_submitter() const noexcept;
  /// A helper on the core of the host or of a publisher goes on offering it: asleep it had to be
  /// woken for every grid (on a quiet host chains over 100000 elements took 1.1 times as long).
  void favour_own() const noexcept;

  /// Moves a worker that has nothing to do to a processor that was calm just now, if one of `hosts`
  /// that wait looks for blocks on the caller's: a chain of short grids would take twice as long.
  /// `moved_ns`: when the worker moved last.
  void leave_host(int hosts, std::int64_t* moved_ns) const noexcept;

  /// What a helper does about the processor that it is on.
  class Helper {
   public:
    explicit Helper(Placement& placement) noexcept : placement_(placement) {}
    /// Before it looks for blocks. `host_waits`: then helpers may have that thread's processor.
    void begin(bool published, bool host_waits) noexcept;
    [[nodiscard]] bool may_rest() const noexcept { return rests_ < PlacementLimits::kMostRests; }
    /// It found none. `hosts`: how many look for blocks themselves.
    void found_nothing(int hosts) noexcept;
    /// It found some of a publisher that is on its own processor `cpu`.
    void rest(int cpu) noexcept;

   private:
    Placement& placement_;
    Processors processors_;
    bool published_ = false, host_waits_ = false;
    int rests_ = 0;
  };

 private:
  void note(std::atomic<int>& where, int cpu) noexcept {
    // Looks alone leave the line to those who share it.
    if (on_ && !is(where, cpu)) where.store(cpu, std::memory_order_relaxed);
  }
  [[nodiscard]] static bool is(const std::atomic<int>& where, int cpu) noexcept {
    return where.load(std::memory_order_relaxed) == cpu;
  }
  /// Whether the caller comes too late for grids because their publisher has its core, and no host
  /// looks for blocks on another.
  [[nodiscard]] bool behind_publisher(int hosts) const noexcept;

  const bool on_;
  // Seldom written, so that who submits finds them in its cache.
  alignas(64) std::atomic<int> submitter_{-1};
  std::atomic<int> publisher_{-1};
  std::atomic<int> host_{-1};
  // Written at the end of every spin.
  alignas(64) std::atomic<std::int64_t> calm_ns_{0};
  std::atomic<int> calm_{-1};
};

}  // namespace loom::detail
