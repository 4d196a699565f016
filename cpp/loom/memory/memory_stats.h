// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What an allocator counts, with the meaning of c10's DeviceStats. Plain values: a consistent copy
// taken at one moment. Thread: any.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace loom {

/// One private pool, {0, 0} is the default pool (c10::MempoolId_t).
using PoolId = std::pair<std::uint64_t, std::uint64_t>;

/// Like c10's Stat: `allocated` and `freed` only grow; current == allocated - freed since the last
/// reset_accumulated_stats() plus what there was then.
struct MemoryStat {
  std::int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  friend bool operator==(const MemoryStat&, const MemoryStat&) = default;
};

/// Aggregate, small pool, large pool: the order of c10's StatType.
using MemoryStatArray = std::array<MemoryStat, 3>;

/// The fields of c10's CachingDeviceAllocator::DeviceStats, with their meaning.
struct MemoryStats {
  MemoryStatArray allocation;      ///< blocks in use by clients
  MemoryStatArray segment;         ///< segments mapped from the source
  MemoryStatArray active;          ///< blocks in use by clients or still by another queue
  MemoryStatArray inactive_split;  ///< free blocks that share their segment with others
  MemoryStatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes,
      requested_bytes;
  MemoryStat oversize_allocations, oversize_segments;
  std::int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0, num_device_free = 0;
  std::size_t max_split_size = SIZE_MAX;
  /// Private pools that hold memory, or did since the last reset_accumulated_stats().
  std::vector<std::pair<PoolId, MemoryStatArray>> reserved_bytes_by_private_pools;
};

}  // namespace loom
