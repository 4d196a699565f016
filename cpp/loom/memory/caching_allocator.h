// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The caching allocator of one device: blocks cut from segments, kept per queue, split and merged,
// never given back to the system until asked or needed. Memory is stream-ordered: a block freed by
// the host is reusable at once by the queue it was allocated for, because that queue runs in order.
// Use by another queue is announced by record_queue() and delays reuse until that queue has passed
// the point of the free.
// Thread: any thread may call anything. One lock per allocator; it is never held while waiting for
// a queue or calling out, except to the segment source.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loom/base/export.h"
#include "loom/device/arena.h"

namespace loom {

class Queue;

/// Like c10's Stat: `allocated` and `freed` only grow.
struct MemoryStat {
  std::int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

/// Aggregate, small pool, large pool: the order of c10's StatType.
using MemoryStatArray = std::array<MemoryStat, 3>;

/// One private pool, {0, 0} is the default pool (c10::MempoolId_t).
using PoolId = std::pair<std::uint64_t, std::uint64_t>;

/// The fields of c10's CachingDeviceAllocator::DeviceStats, with their meaning.
struct MemoryStats {
  MemoryStatArray allocation, segment, active, inactive_split;
  MemoryStatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes,
      requested_bytes;
  MemoryStat oversize_allocations, oversize_segments;
  std::int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0, num_device_free = 0;
};

/// PYTORCH_ALLOC_CONF, as far as it applies. Read by the torch skin; the core gets the values.
struct AllocatorConfig {
  std::size_t max_split_size = SIZE_MAX;      ///< bytes; larger blocks are not split
  double garbage_collection_threshold = 0.0;  ///< share of the limit; 0 = off
  /// Rounds a request before it is looked up: power-of-two divisions of c10's
  /// AcceleratorAllocatorConfig::roundup_power2_divisions(size); null = 512-byte rounding only.
  std::function<std::size_t(std::size_t bytes)> round_up;
};

struct BlockSnapshot {
  void* address;
  std::size_t size, requested_size;
  bool allocated;  ///< in use by a client
  bool active;     ///< allocated, or freed and still used by another queue
  std::string name;  ///< the name a user gave the allocation, or empty
};

struct SegmentSnapshot {
  void* address;
  std::size_t total_size, requested_size, allocated_size, active_size;
  const Queue* queue;
  bool is_large;
  PoolId pool;
  std::vector<BlockSnapshot> blocks;
};

/// One entry of the allocation history. Times are steady-clock nanoseconds.
struct TraceEntry {
  enum class Action {
    kAlloc, kFreeRequested, kFreeCompleted, kSegmentAlloc, kSegmentFree, kSnapshot, kOutOfMemory
  };
  Action action;
  void* address;  ///< for kOutOfMemory: null
  std::size_t size;
  const Queue* queue;
  std::int64_t time_ns;
  std::shared_ptr<void> context;  ///< what the context recorder returned, or null
};

class LOOM_API CachingAllocator {
 public:
  CachingAllocator(int device, SegmentSource& source);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// A block of at least `bytes` for use on `queue`, aligned to 512 bytes (64 at least), or null when the limit is
  /// reached even after pending frees were waited for and the cache was returned to the system.
  /// `bytes` 0 gives null without an error.
  [[nodiscard]] void* allocate(std::size_t bytes, Queue& queue);
  /// Requires: `address` from allocate(), not yet freed; null is ignored.
  void free(void* address) noexcept;
  /// Announces that `queue` uses the block. Requires: as free(). The block's own queue is ignored.
  void record_queue(void* address, Queue& queue);

  /// Returns all free segments of the pool (of all pools for {0,0}) to the system, after pending
  /// cross-queue frees that are complete have been taken in.
  void empty_cache(PoolId pool = {0, 0});

  /// While a pool is active for the calling thread's queue, `filter(queue)` decides whose
  /// allocations go to it (graph capture). Pools are reference-counted by begin/release.
  void begin_allocate_to_pool(PoolId pool, std::function<bool(const Queue&)> filter);
  void end_allocate_to_pool(PoolId pool);
  void release_pool(PoolId pool);
  [[nodiscard]] static PoolId new_pool_id();

  [[nodiscard]] MemoryStats stats() const;
  void reset_accumulated_stats();
  void reset_peak_stats();
  /// Free and total bytes: what could still be mapped plus what is cached counts as free in the
  /// sense of cudaMemGetInfo, i.e. free = limit - mapped.
  [[nodiscard]] std::pair<std::size_t, std::size_t> memory_info() const;
  /// Share of the source's limit that may be reserved, in (0, 1].
  /// Throws: loom::Error outside that range.
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const;
  void set_config(AllocatorConfig config);

  [[nodiscard]] std::vector<SegmentSnapshot> snapshot() const;
  /// Starts (max_entries > 0) or stops (0) keeping history; `context` is called, without the lock,
  /// for each entry to attach e.g. a stack; may be null.
  void record_history(std::size_t max_entries, std::function<std::shared_ptr<void>()> context);
  [[nodiscard]] std::vector<TraceEntry> history() const;

  /// The block that holds `address` (any address inside it): its start and size, if allocated.
  [[nodiscard]] std::optional<BlockSnapshot> find(const void* address) const;
  /// As find(), written as text for a person, without waiting for the lock or allocating:
  /// for the fault handler. False when the lock is held or nothing is found.
  bool describe(const void* address, char* text, std::size_t size) const noexcept;
  /// Names the allocation that holds `address`. False when there is none.
  bool set_name(const void* address, std::string name);

  /// Walks all structures and ends the process on a broken invariant. For tests and debug builds.
  void check_invariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loom
