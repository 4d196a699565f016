// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The cores of a device. A kernel is a grid of blocks: the worker that runs it publishes the grid
// and claims blocks itself, and idle cores claim blocks beside it, so that a busy or descheduled
// core costs its share and no more. The threads are started at the first grid that can use them;
// idle ones spin briefly, then sleep. There is no OpenMP here.
// Thread: run() may be called by several workers at once; grids of a higher priority go first.

#include "loom/base/export.h"

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace loom {

/// Who may run the blocks of a grid.
enum class RunBy : std::uint8_t {
  kDevice,  ///< the device's threads: blocks may rely on how those are set up
  kAny,     ///< host threads that wait, too: blocks call nothing that has settings of its thread
};

class LOOM_API Cores {
 public:
  /// `count` cores: the calling worker and up to count - 1 threads of its own, which run on the
  /// processors `cpus` (empty = anywhere) and are named after `device`.
  explicit Cores(int count, std::vector<int> cpus = {}, int device = 0);
  /// Requires: no run() is under way.
  ~Cores();
  Cores(const Cores&) = delete;
  Cores& operator=(const Cores&) = delete;

  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] const std::vector<int>& cpus() const noexcept { return cpus_; }

  /// Calls body(block) once for every block in [0, blocks), on this thread and on idle cores, and
  /// returns when all have run. How work is cut into blocks must depend on shapes only, never on
  /// count(), so that results do not either. A lower `priority` number goes first (as in CUDA).
  /// A grid of one block is a plain call. A grid run from inside a block of a larger one runs on
  /// the calling thread.
  /// Throws: the first exception of a block, after all claimed blocks have ended; blocks not yet
  /// claimed then are skipped.
  template <class Body>
  void run(std::int64_t blocks, Body&& body, int priority = 0, RunBy by = RunBy::kDevice) {
    using Function = std::remove_reference_t<Body>;
    run_erased(
        blocks,
        [](void* context, std::int64_t block) { (*static_cast<Function*>(context))(block); },
        const_cast<void*>(static_cast<const void*>(&body)), priority, by);
  }

  /// While it lives, a host thread waits for work of these cores, awake or asleep: helpers may have
  /// its processor. Requires: the cores outlive it.
  class LOOM_API HostWait {
   public:
    explicit HostWait(Cores& cores) noexcept;
    ~HostWait();
    HostWait(const HostWait&) = delete;
    HostWait& operator=(const HostWait&) = delete;

   private:
    Cores& cores_;
  };

  /// A hint for favour_submitter(): the calling thread submits work for these cores.
  void note_submitter() noexcept;

  /// On a worker: lets the thread that submits have the core that both are on (placement.h).
  void favour_submitter() const noexcept;

  /// On a worker that has nothing to do: moves it, if a host thread that waits looks for blocks on
  /// its processor and another one is calm. `moved_ns`: when it moved last, which only this
  /// changes.
  void leave_host(std::int64_t* moved_ns) const noexcept;

  /// For a host thread that waits: runs blocks of grids that any thread may run until `done()`, or
  /// until none was to be had for some times `limit_ns`, or until a helper is better for it (all
  /// cores are wanted for a grid that is the device's, or the publisher's processor is this one's);
  /// returns whether it is done. `done` is called often, and at least once.
  /// Meanwhile such grids wake no core that sleeps for its sake.
  template <class Done>
  bool help_until(Done&& done, std::int64_t limit_ns) {
    using Function = std::remove_reference_t<Done>;
    return help_until_erased(
        [](const void* context) -> bool { return (*static_cast<const Function*>(context))(); },
        &done, limit_ns);
  }

 private:
  using BlockFunction = void (*)(void* context, std::int64_t block);
  using DoneFunction = bool (*)(const void* context);
  struct State;

  void run_erased(std::int64_t blocks, BlockFunction function, void* context, int priority,
                  RunBy by);
  bool help_until_erased(DoneFunction done, const void* context, std::int64_t limit_ns);

  const int count_;
  const std::vector<int> cpus_;
  const int device_;
  std::unique_ptr<State> state_;
};

}  // namespace loom
