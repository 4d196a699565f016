// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Lets a CPU operator write its results straight into device memory: while a scope is alive, CPU
// memory that this thread allocates comes from loom's caching allocator (as host-accessible
// addresses), and the storages that carry results are turned into device storages without a copy.
// Every other thread, and this one outside a scope, allocates as before.
// Thread: a scope belongs to the thread that made it; memory may be freed by any thread.

#include "loom/base/export.h"

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <optional>

namespace loom {
class Queue;
}

namespace loom::ops {

class DeviceOutputScope {
 public:
  /// Memory is that of `queue`. Each block waits until what the queue has been given has run, since
  /// the host writes it and the work of another thread may still be queued on it.
  explicit DeviceOutputScope(Queue& queue) noexcept;
  ~DeviceOutputScope();
  DeviceOutputScope(const DeviceOutputScope&) = delete;
  DeviceOutputScope& operator=(const DeviceOutputScope&) = delete;

 private:
  Queue* const previous_;
};

/// While it lives, one CPU allocation of exactly `bytes` that this thread makes is `memory`: an
/// operator that returns a new tensor then writes where its result belongs. It is the first one
/// after `skipped` of that size, or, if that is freed meanwhile, the next; others are ordinary, so
/// who uses this compares addresses afterwards. With no bytes it does nothing.
/// Requires: what is allocated so is freed by this thread, if it is while the object lives.
class LOOM_API PlacedAllocation {
 public:
  PlacedAllocation(void* memory, std::size_t bytes, int skipped = 0) noexcept;
  ~PlacedAllocation();
  PlacedAllocation(const PlacedAllocation&) = delete;
  PlacedAllocation& operator=(const PlacedAllocation&) = delete;

  /// The memory if nobody has taken it and `bytes` are wanted, else null.
  [[nodiscard]] void* take(std::size_t bytes) noexcept;
  /// Takes back what was allocated so; false if neither this object nor one around it gave it.
  bool give_back(const void* memory) noexcept;

 private:
  PlacedAllocation* const previous_;
  void* const memory_;
  const std::size_t bytes_;
  int skipped_;
  bool taken_ = false;
};

/// If the storage's memory was allocated in a scope, takes it out as a device pointer and leaves
/// the storage empty; otherwise nothing.
[[nodiscard]] std::optional<c10::DataPtr> take_device_memory(c10::StorageImpl& storage);

/// Waits until the host may write a block that has just been allocated for the current stream.
void wait_for_host_write(c10::Device device);

/// The CPU allocator that scopes act on; storages made with it can be resized inside a scope.
[[nodiscard]] c10::Allocator* scoped_cpu_allocator() noexcept;

}  // namespace loom::ops
