// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/device_allocator.h"

#include "loom/base/mutex.h"
#include "loom/device/device.h"
#include "loom/memory/redzone.h"

#include <array>
#include <atomic>

namespace loom {
namespace {

// Stored once per device, with release, after the allocator is complete; loaded with acquire.
std::array<std::atomic<CachingAllocator*>, kMaxDevices> g_allocators;

CachingAllocator& make_allocator(int index) {
  static Mutex mutex;
  Device& owner = device(index);  // throws for a bad index
  MutexLock lock(mutex);
  auto& slot = g_allocators[static_cast<std::size_t>(index)];
  // Relaxed: only this function stores, under the lock.
  if (CachingAllocator* made = slot.load(std::memory_order_relaxed)) return *made;
  // Leaked: see the header.
  auto* allocator = new CachingAllocator(index, owner.arena(), detail::kRedzoneBytes);
  slot.store(allocator, std::memory_order_release);
  return *allocator;
}

}  // namespace

CachingAllocator& device_allocator(int device) {
  if (device >= 0 && device < kMaxDevices) [[likely]] {
    auto& slot = g_allocators[static_cast<std::size_t>(device)];
    if (CachingAllocator* made = slot.load(std::memory_order_acquire)) return *made;
  }
  return make_allocator(device);
}

bool describe_address(const void* address, char* text, std::size_t size) noexcept {
  for (auto& slot : g_allocators) {
    const CachingAllocator* allocator = slot.load(std::memory_order_acquire);
    if (allocator != nullptr && allocator->describe(address, text, size)) return true;
  }
  return false;
}

}  // namespace loom
