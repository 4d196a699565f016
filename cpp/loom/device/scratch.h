// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Memory that kernels keep from one run to the next: each thread has its own for each purpose, so
// that a reservation is a thread-local load and a comparison of sizes. It is counted, for the
// device whose work the thread runs, and goes back to the system on release_scratch().
//
// Who frees: only the owner of the memory, or somebody else while the owner has let go of it. A
// thread holds its memory from its first reservation until it says that no kernel of its own is
// under way (let_go_of_scratch()): a worker and a core's helper before they sleep, a waiter when it
// ends its help. No pointer is used beyond that. Its next reservation takes the memory back.
// Thread: any; what reserve() returns is the calling thread's.

#include "loom/base/export.h"

#include <cstddef>
#include <cstdint>

namespace loom {

namespace detail {

struct ScratchMemory {
  void* start = nullptr;
  std::size_t bytes = 0;
};

/// What the calling thread holds; none while it has let go. Not the owner, which has a destructor:
/// this may be looked at until the thread's very end.
struct HeldScratch {
  ScratchMemory* memories = nullptr;
  std::size_t count = 0;
};
extern thread_local constinit HeldScratch t_scratch __attribute__((tls_model("initial-exec")));

void let_go_of_held_scratch() noexcept;

/// Tells that the thread's thread-local objects are being destroyed, which blocks use. Where
/// blocks make such objects, a thread_local one of these is made after them, and dies before them.
class LeavingNote {
 public:
  LeavingNote() noexcept {}
  LeavingNote(const LeavingNote&) = delete;
  LeavingNote& operator=(const LeavingNote&) = delete;
  ~LeavingNote();
};

/// True once the calling thread's thread-local objects are being destroyed, which blocks use.
[[nodiscard]] bool thread_is_leaving() noexcept;

}  // namespace detail

/// Memory for one purpose, aligned to cache lines. It keeps no values until the thread's next
/// reservation for the same purpose. For global variables: a thread_local one each would need more
/// of the memory that the dynamic loader has for those (static TLS) than it has to give.
class LOOM_API Scratch {
 public:
  Scratch() noexcept;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Throws: std::bad_alloc; loom::Error in a forked child.
  [[nodiscard]] void* reserve(std::size_t bytes) const {
    const detail::HeldScratch& held = detail::t_scratch;
    if (index_ < held.count) [[likely]] {
      const detail::ScratchMemory& memory = held.memories[index_];
      if (bytes <= memory.bytes) [[likely]] {
        return memory.start;
      }
    }
    return grow(bytes);
  }
  /// Room for `count` elements.
  template <class T>
  [[nodiscard]] T* get(std::int64_t count) const {
    return static_cast<T*>(reserve(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  [[nodiscard]] void* grow(std::size_t bytes) const;

  const std::size_t index_;
};

/// The calling thread has no kernel under way: others may free what it has reserved.
inline void let_go_of_scratch() noexcept {
  if (detail::t_scratch.count != 0) detail::let_go_of_held_scratch();
}

/// What the calling thread reserves first, and from then on, counts for this device.
LOOM_API void set_scratch_device(int device) noexcept;

/// Frees what threads that have let go have reserved for the device. The others free theirs when
/// they let go. Throws: loom::Error in a forked child.
LOOM_API void release_scratch(int device);

struct ScratchBytes {
  std::int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
/// Bytes reserved for the device, as MemoryStat counts (memory/memory_stats.h).
[[nodiscard]] LOOM_API ScratchBytes scratch_bytes(int device) noexcept;
LOOM_API void reset_scratch_peak(int device) noexcept;
LOOM_API void reset_accumulated_scratch(int device) noexcept;

}  // namespace loom
