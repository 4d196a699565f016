// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which device memory lacks its values, and why. When a command fails, what it should have written
// is marked; a later command that reads a marked place does not run, and marks what it should have
// written with the same failure; whoever looks at a marked value on the host gets the error. A
// command that writes all bytes of a place, whatever they held, makes it healthy, and so does an
// allocation: the new owner's values are other values. Host memory that tensors of a device lie in
// (HostVisible) is marked as device memory is.
//
// While nothing has failed, all there is to it is a look at one flag, by the worker for each
// command and by the allocator. Thread: any. One lock, under which nothing is called.

#include "loom/base/export.h"
#include "loom/device/command_buffer.h"
#include "loom/device/failure.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace loom {

class Queue;

/// Tells whether the allocation that holds a device address is in use. Set by who allocates.
using AllocationProbe = bool (*)(const void* device_address);

class LOOM_API FailedMemory {
 public:
  /// A command, by its queue and position. Without a queue: the host, after all commands.
  struct Reader {
    const Queue* queue = nullptr;
    std::uint64_t position = UINT64_MAX;
  };

  /// Whether any memory is marked. Relaxed: a worker sees its own marks, and those of a queue that
  /// it has waited for through that queue's timeline; the host through its wait.
  [[nodiscard]] static bool any() noexcept { return any_.load(std::memory_order_relaxed); }

  /// Marks what `accesses` write; host memory that no tensor of a device lies in is left out.
  /// `writer`: the command. Returns true if the host can read some of it without asking loom.
  /// Throws: std::bad_alloc; then some of it may be marked.
  static bool mark(const AccessList& accesses, const FailurePtr& failure, const Queue& writer);
  /// Marks all memory there is: nobody could note which part of it lacks values. Needs no memory.
  static void mark_everything(const FailurePtr& failure) noexcept;
  /// The failure of the first place that `accesses` read and that is marked, or null.
  [[nodiscard]] static FailurePtr find(const AccessList& accesses, const Reader& reader);
  /// Forgets the marks of what `accesses` write all over.
  static void clear(const AccessList& accesses);

  /// For the host, which has waited for the commands that write there.
  /// Throws: the error of a marked place in the range.
  static void check(const void* device_address, std::size_t bytes) {
    if (any()) [[unlikely]]
      check_marks(device_address, bytes);
  }

  /// The host has given the memory to a new owner for use on `queue`, or has dropped it: what is
  /// submitted from now on finds it healthy, what is queued already does not.
  static void note_allocated(const void* device_address, std::size_t bytes, const Queue& queue);
  static void note_freed(const void* device_address, std::size_t bytes, const Queue& queue);
  /// The memory does not exist any more; no command reads it.
  static void note_unmapped(const void* device_address, std::size_t bytes) noexcept;

  /// Set once, before the device is used; null for none.
  static void set_allocation_probe(AllocationProbe probe) noexcept;

 private:
  friend class HostVisible;
  /// Called with the lock held.
  static void note_cleared(bool all) noexcept {
    if (all) any_.store(false, std::memory_order_relaxed);
  }
  static void note_dropped(const void* address, std::size_t bytes, const Queue& queue,
                           bool has_new_owner);
  static void check_marks(const void* device_address, std::size_t bytes);

  static std::atomic<bool> any_;
};

/// While it lives, the host can read the memory without asking loom: a view on the host shows
/// memory of a device, or a tensor of a device lies in memory of the host. What a failed command
/// should have written there is lost for each thread that waits for it (Queue::synchronize()).
class LOOM_API HostVisible {
 public:
  /// `address`: as commands list it.
  HostVisible(const void* address, std::size_t bytes);
  /// Forgets the marks of host memory that no other tensor of a device lies in: its owner may write
  /// other values. Requires: no command that is queued touches such memory.
  ~HostVisible();
  HostVisible(const HostVisible&) = delete;
  HostVisible& operator=(const HostVisible&) = delete;

 private:
  const std::byte* const begin_;
  const std::byte* const end_;
};

}  // namespace loom
