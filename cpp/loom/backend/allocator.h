// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Device memory for c10: the adapter from c10::DeviceAllocator to the caching allocator of each
// device. Data pointers carry device addresses (loom/device/address.h), which the host must not
// touch. Memory is stream-ordered: it belongs to the stream that was current at its allocation and
// may be dropped while that stream still has work on it queued.
// Thread: any thread may call anything. Deleters throw nothing, take no GIL and wait for nothing.

#include "loom/base/export.h"
#include "loom/memory/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <string>
#include <utility>

namespace loom {

class Queue;

class LOOM_API LoomAllocator final : public c10::DeviceAllocator {
 public:
  /// Memory on the current device for its current stream.
  c10::DataPtr allocate(std::size_t bytes) override;
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override;
  /// Copies on the current stream; returns before the copy has run.
  void copy_data(void* dest, const void* src, std::size_t count) const override;

  bool initialized() override;
  void emptyCache(c10::MempoolId_t mempool_id = {0, 0}) override;
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override;
};

/// The allocator that is registered for loom's device type.
[[nodiscard]] LOOM_API LoomAllocator& allocator();

/// Memory for use on `queue`; 0 bytes give a null pointer with the queue's device. What operators
/// call for their outputs.
/// Throws: c10::OutOfMemoryError with the device's statistics; the device stays usable.
[[nodiscard]] LOOM_API c10::DataPtr allocate(std::size_t bytes, Queue& queue);

/// The caching allocator of a device, made at its first use.
/// Throws: c10::Error when there is no such device.
[[nodiscard]] LOOM_API CachingAllocator& caching_allocator(c10::DeviceIndex device);

/// The address that names the allocation behind `ptr` when it is freed (fusion/freed.h), or null if
/// this allocator does not free it.
[[nodiscard]] LOOM_API const void* allocation_of(const c10::DataPtr& ptr) noexcept;

/// Whether the allocation that holds this device address is in use (an AllocationProbe,
/// failed_memory.h). Memory of others than this allocator counts as in use.
[[nodiscard]] bool is_allocated(const void* address);

/// Keeps the memory behind `ptr` from being reused before `queue` has passed what is submitted to
/// it when the memory is dropped. Pointers that are not from this allocator are ignored.
LOOM_API void record_queue(const c10::DataPtr& ptr, Queue& queue);

/// Copies device memory to device memory on `queue`, by its worker and the device's cores.
/// Requires: no overlap; both ranges stay allocated in stream order.
LOOM_API void copy_device_bytes(void* dest, const void* src, std::size_t bytes, Queue& queue);

}  // namespace loom
