// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/memory_stats.h"

#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"

#include <c10/core/AllocatorConfig.h>

#include <cstddef>
#include <tuple>

namespace loom {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

Stat to_c10_stat(const MemoryStat& from) {
  Stat stat;
  stat.current = from.current;
  stat.peak = from.peak;
  stat.allocated = from.allocated;
  stat.freed = from.freed;
  return stat;
}

StatArray to_c10_stats(const MemoryStatArray& from) {
  StatArray stats;
  static_assert(std::tuple_size_v<StatArray> == std::tuple_size_v<MemoryStatArray>);
  for (std::size_t i = 0; i < stats.size(); ++i) stats[i] = to_c10_stat(from[i]);
  return stats;
}

MemoryStats stats_of(c10::DeviceIndex device) {
  return caching_allocator(resolve_device(device, "memory_stats")).stats();
}

std::size_t to_bytes(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

c10::CachingDeviceAllocator::DeviceStats LoomAllocator::getDeviceStats(c10::DeviceIndex device) {
  const MemoryStats from = stats_of(device);
  c10::CachingDeviceAllocator::DeviceStats to;
  to.allocation = to_c10_stats(from.allocation);
  to.segment = to_c10_stats(from.segment);
  to.active = to_c10_stats(from.active);
  to.inactive_split = to_c10_stats(from.inactive_split);
  to.allocated_bytes = to_c10_stats(from.allocated_bytes);
  to.reserved_bytes = to_c10_stats(from.reserved_bytes);
  for (const auto& [pool, bytes] : from.reserved_bytes_by_private_pools) {
    to.reserved_bytes_by_private_pools[pool] = to_c10_stats(bytes);
  }
  to.active_bytes = to_c10_stats(from.active_bytes);
  to.inactive_split_bytes = to_c10_stats(from.inactive_split_bytes);
  to.requested_bytes = to_c10_stats(from.requested_bytes);
  to.oversize_allocations = to_c10_stat(from.oversize_allocations);
  to.oversize_segments = to_c10_stat(from.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  to.max_split_size = static_cast<std::int64_t>(
      c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size());
  return to;
}

std::size_t memory_allocated(c10::DeviceIndex device) {
  return to_bytes(stats_of(device).allocated_bytes[0].current);
}

std::size_t max_memory_allocated(c10::DeviceIndex device) {
  return to_bytes(stats_of(device).allocated_bytes[0].peak);
}

std::size_t memory_reserved(c10::DeviceIndex device) {
  return to_bytes(stats_of(device).reserved_bytes[0].current);
}

std::size_t max_memory_reserved(c10::DeviceIndex device) {
  return to_bytes(stats_of(device).reserved_bytes[0].peak);
}

void reset_peak_memory_stats(c10::DeviceIndex device) {
  caching_allocator(resolve_device(device, "reset_peak_memory_stats")).reset_peak_stats();
}

std::pair<std::size_t, std::size_t> mem_get_info(c10::DeviceIndex device) {
  return caching_allocator(resolve_device(device, "mem_get_info")).memory_info();
}

void empty_cache() { allocator().emptyCache(); }

}  // namespace loom
