// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The caching allocator of one device: blocks cut from segments, kept per queue, split and merged,
// never given back to the system until asked or needed. Memory is stream-ordered: a block freed by
// the host is reusable at once by the queue it was allocated for, because that queue runs in order.
// Use by another queue is announced by record_queue() and delays reuse until that queue has passed
// the point of the free. docs/design/memory.md tells the whole story.
// Thread: any thread may call anything. One lock per allocator; it is never held while waiting for
// a queue or calling out, except to the segment source. allocate() and empty_cache() may wait for
// queues when called by a thread that is no worker; callers must not hold what a command needs.

#include "loom/base/export.h"
#include "loom/device/arena.h"
#include "loom/memory/memory_snapshot.h"
#include "loom/memory/memory_stats.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace loom {

class Queue;

/// PYTORCH_ALLOC_CONF, as far as it applies. Read by the torch skin; the core gets the values.
struct AllocatorConfig {
  /// Bytes; blocks of this size and more ("oversize") are not split. More than 20 MiB.
  std::size_t max_split_size = SIZE_MAX;
  /// An oversize request takes a cached block only if that is larger by less than this.
  std::size_t max_non_split_rounding = std::size_t{20} << 20;
  /// Share of the limit, in [0, 1), above which unused segments are returned, oldest first; 0 =
  /// off.
  double garbage_collection_threshold = 0.0;
  /// Rounds a request before it is looked up: power-of-two divisions of c10's
  /// AcceleratorAllocatorConfig::roundup_power2_divisions(size); null = 512-byte rounding only.
  /// Called without the lock, by any thread; a result below `bytes` is ignored.
  std::function<std::size_t(std::size_t bytes)> round_up = nullptr;
};

class LOOM_API CachingAllocator {
 public:
  /// Blocks have at least `redzone_bytes` behind what was asked for (redzone.h).
  /// Requires: `source` and every queue that is ever passed in outlive the allocator.
  CachingAllocator(int device, SegmentSource& source, std::size_t redzone_bytes = 0);
  /// Waits for the queues that still use its memory and unmaps everything, blocks in use included.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// A block of at least `bytes` for use on `queue`, aligned to 512 bytes, or null when the limit
  /// is reached even after pending frees were waited for and the cache was returned to the system.
  /// `bytes` 0 gives null without an error.
  /// Throws: loom::Error in a forked child, and what a callback throws; nothing is lost then.
  [[nodiscard]] void* allocate(std::size_t bytes, Queue& queue);
  /// Requires: `address` from allocate(), not yet freed (ends the process otherwise); null is
  /// ignored. Never waits. In a forked child it does nothing.
  void free(void* address) noexcept;
  /// Announces that `queue` uses the block. The block's own queue and null are ignored.
  /// Throws: loom::Error unless `address` is from allocate() and not yet freed.
  void record_queue(void* address, Queue& queue);

  /// Returns free segments to the system: those of the default pool and of released private pools
  /// for {0,0}, else those of that pool if it is released. Waits for the queues that own them, as
  /// memory must not be unmapped under queued commands; a worker does not wait, and leaves what is
  /// still in use.
  void empty_cache(PoolId pool = {0, 0});

  /// From now on allocations for queues with `filter(queue)` go to a pool of their own (graph
  /// capture), until end_allocate_to_pool(). `filter` is called without the lock, by any thread.
  /// Each begin adds a reference to the pool, release_pool() drops one. A pool keeps its memory
  /// mapped until it is released, has no block in use, and the cache is emptied; blocks used by
  /// other queues (record_queue) and freed during a capture become free after its end at the
  /// earliest, because what a capture records runs later.
  /// Throws: loom::Error for {0,0} and for a begin/end/release that does not match.
  void begin_allocate_to_pool(PoolId pool, std::function<bool(const Queue&)> filter);
  void end_allocate_to_pool(PoolId pool);
  void release_pool(PoolId pool);
  /// Unique in the process.
  [[nodiscard]] static PoolId new_pool_id();

  [[nodiscard]] MemoryStats stats() const;
  /// Bytes of blocks in use by clients, and bytes mapped: the cheap part of stats().
  [[nodiscard]] std::pair<std::size_t, std::size_t> allocated_and_reserved() const;
  void reset_accumulated_stats();
  void reset_peak_stats();
  /// Free and total bytes in the sense of cudaMemGetInfo: free = limit - mapped, so that cached
  /// memory does not count as free.
  [[nodiscard]] std::pair<std::size_t, std::size_t> memory_info() const;
  /// Share of the source's limit that may be reserved, in (0, 1].
  /// Throws: loom::Error outside that range.
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const;
  /// Throws: loom::Error for values outside their range.
  void set_config(AllocatorConfig config);

  /// All segments by address. While history is kept, it adds an entry to it.
  [[nodiscard]] std::vector<SegmentSnapshot> snapshot() const;
  /// Starts (max_entries > 0) or stops (0) keeping history; starting again forgets what was kept.
  /// `context` is called, without the lock, for each entry to attach e.g. a stack; may be null.
  void record_history(std::size_t max_entries, std::function<std::shared_ptr<void>()> context);
  /// The last max_entries entries, oldest first.
  [[nodiscard]] std::vector<TraceEntry> history() const;

  /// The block that holds `address` (any address inside it): its start and size, if allocated.
  [[nodiscard]] std::optional<BlockSnapshot> find(const void* address) const;
  /// As find(), written as text for a person (null-terminated), without waiting for the lock or
  /// allocating: for the fault handler. Freed blocks are described too. False when the lock is
  /// held or nothing is found.
  bool describe(const void* address, char* text, std::size_t size) const noexcept;
  /// Names the allocation that holds `address`, until it is freed. False when there is none.
  bool set_name(const void* address, std::string name);

  /// Walks all structures and ends the process on a broken invariant. For tests and debug builds.
  void check_invariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loom
