// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The inside of CachingAllocator, shared by its source files: allocation.cpp takes and frees
// blocks, reclaim.cpp finds memory when there is none, snapshot.cpp and describe.cpp look,
// invariants.cpp checks. Everything but the callbacks' flag is guarded by the one lock.
// Thread: functions marked LOOM_REQUIRES(mutex) with the lock held, the others without.

#include "loom/base/mutex.h"
#include "loom/device/scratch.h"
#include "loom/memory/block.h"
#include "loom/memory/block_pool.h"
#include "loom/memory/caching_allocator.h"
#include "loom/memory/pending_frees.h"
#include "loom/memory/pool_group.h"
#include "loom/memory/segment_table.h"
#include "loom/memory/stat_tracker.h"
#include "loom/memory/trace_history.h"
#include "loom/memory/wait_list.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace loom {

/// Functions of the client. They are called without the lock, from an immutable copy.
struct AllocatorCallbacks {
  struct Capture {
    PoolId pool;
    std::function<bool(const Queue&)> filter;
    // One for all copies. Set under the lock, without memory for a copy that lacks the capture.
    // Relaxed: as `has_callbacks`.
    std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);

    [[nodiscard]] bool under_way() const noexcept {
      return !ended->load(std::memory_order_relaxed);
    }
  };
  std::function<std::size_t(std::size_t)> round_up;
  std::function<std::shared_ptr<void>()> context;
  std::vector<Capture> captures;

  [[nodiscard]] bool any() const noexcept {
    return round_up != nullptr || context != nullptr || !captures.empty();
  }
  /// Ends the capture of `pool`; false if there is none under way.
  [[nodiscard]] bool end(PoolId pool) const noexcept {
    const auto found = std::find_if(captures.begin(), captures.end(), [&](const Capture& capture) {
      return capture.pool == pool && capture.under_way();
    });
    if (found == captures.end()) return false;
    found->ended->store(true, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] bool capturing() const noexcept {
    return std::any_of(captures.begin(), captures.end(),
                       [](const Capture& capture) { return capture.under_way(); });
  }
};

struct CachingAllocator::State {
  using Block = detail::Block;
  using BlockPool = detail::BlockPool;
  using PoolGroup = detail::PoolGroup;
  using Segment = detail::Segment;
  using Context = std::shared_ptr<void>;

  /// What a client wants, after its callbacks were asked.
  struct Request {
    std::size_t requested = 0;  ///< bytes
    std::size_t size = 0;       ///< of the block that serves it
    Queue& queue;
    PoolId pool{0, 0};
    Context context;
  };

  State(int device_index, SegmentSource& segment_source, std::size_t redzone);

  // allocation.cpp
  [[nodiscard]] Request make_request(std::size_t bytes, Queue& queue) LOOM_EXCLUDES(mutex);
  [[nodiscard]] Block* take_cached(const Request& request) LOOM_REQUIRES(mutex);
  [[nodiscard]] Block* map_and_take(const Request& request, std::size_t bytes) LOOM_REQUIRES(mutex);
  /// Notes a mapped segment for the request, as one free block. Throws: std::bad_alloc; then
  /// nothing has changed.
  [[nodiscard]] Segment& adopt(std::byte* address, std::size_t bytes, const Request& request)
      LOOM_REQUIRES(mutex);
  Block* hand_out(Block& block, const Request& request) LOOM_REQUIRES(mutex);
  /// Without host memory for what it notes, the block stays allocated until free_postponed().
  void free_block(Block& block, const Context& context) noexcept LOOM_REQUIRES(mutex);
  void free_postponed() noexcept LOOM_REQUIRES(mutex);
  void postpone(Block& block) noexcept LOOM_REQUIRES(mutex);
  /// Has memory ready for all that free_block() notes. Throws: std::bad_alloc.
  void prepare_to_free(const Block& block) LOOM_REQUIRES(mutex);
  /// Makes the block free for its queue: no queue uses it any more but its own.
  void complete_free(Block& block, const Context& context) noexcept LOOM_REQUIRES(mutex);
  void take_in_pending() noexcept LOOM_REQUIRES(mutex);
  /// Waits for the other queues begin now for blocks that were freed during a capture, if none is
  /// under way. What there is no host memory for is left to free_postponed().
  void release_held() noexcept LOOM_REQUIRES(mutex);
  [[nodiscard]] Block* allocated_block(const void* address) const LOOM_REQUIRES(mutex);
  /// For AddressSanitizer: nobody may use these bytes of the segment, unless somebody still might.
  static void poison_unused(const Segment& segment, const std::byte* address, std::size_t bytes);

  // reclaim.cpp
  [[nodiscard]] Block* allocate_slowly(const Request& request) LOOM_EXCLUDES(mutex);
  [[nodiscard]] Block* retry(const Request& request) LOOM_REQUIRES(mutex);
  Block* out_of_memory(const Request& request) LOOM_REQUIRES(mutex);
  void collect_garbage() LOOM_REQUIRES(mutex);
  [[nodiscard]] bool release_oversize(const Request& request) LOOM_REQUIRES(mutex);
  /// Unmaps the free segments that their queues have passed, of `pool` or, for {0,0}, of all.
  void release_free_segments(PoolId pool) LOOM_REQUIRES(mutex);
  /// What must be reached before the free segments of `pool` may be unmapped.
  void add_segment_waits(PoolId pool, detail::WaitList& waits) const LOOM_REQUIRES(mutex);
  void unmap(Segment& segment) LOOM_REQUIRES(mutex);
  [[nodiscard]] std::size_t allowed_bytes() const LOOM_REQUIRES(mutex);
  [[nodiscard]] bool may_unmap(const Segment& segment) const LOOM_REQUIRES(mutex);

  // caching_allocator.cpp
  [[nodiscard]] PoolGroup& group_of(PoolId pool) LOOM_REQUIRES(mutex);
  /// The private pool's; made where it is not there yet.
  [[nodiscard]] PoolGroup& make_group(PoolId pool) LOOM_REQUIRES(mutex);
  void drop_if_unused(PoolGroup& group) noexcept LOOM_REQUIRES(mutex);
  [[nodiscard]] std::shared_ptr<const AllocatorCallbacks> callbacks_now() const
      LOOM_EXCLUDES(mutex);
  /// Replaces the callbacks by a changed copy without captures that have ended; the old one dies
  /// when its last user is done.
  void change_callbacks(const std::function<void(AllocatorCallbacks&)>& change)
      LOOM_REQUIRES(mutex);
  [[nodiscard]] Context gather_context() const LOOM_EXCLUDES(mutex) {
    // Relaxed: see the declaration.
    return has_callbacks.load(std::memory_order_relaxed) ? ask_for_context() : nullptr;
  }
  [[nodiscard]] Context ask_for_context() const LOOM_EXCLUDES(mutex);
  /// Adds to the history if one is kept; without host memory for it the entry is missing there.
  void trace(TraceEntry::Action action, void* address, std::size_t size, const Queue* queue,
             PoolId pool, const Context& context) LOOM_REQUIRES(mutex) {
    if (history.recording()) add_trace(action, address, size, queue, pool, context);
  }
  void add_trace(TraceEntry::Action action, void* address, std::size_t size, const Queue* queue,
                 PoolId pool, const Context& context) LOOM_REQUIRES(mutex);
  [[nodiscard]] std::int64_t reserved() const LOOM_REQUIRES(mutex) {
    return stats.reserved_bytes.current();
  }
  /// What counts toward the limit: segments, and the scratch memory of kernels.
  [[nodiscard]] std::size_t in_use() const LOOM_REQUIRES(mutex) {
    return static_cast<std::size_t>(reserved() + scratch_bytes(device).current);
  }

  // snapshot.cpp, describe.cpp, invariants.cpp
  [[nodiscard]] static BlockSnapshot snapshot_of(const Block& block);
  [[nodiscard]] Block* block_around(const void* address) const LOOM_REQUIRES(mutex);
  void check() const LOOM_REQUIRES(mutex);
  /// Under LOOM_CHECKS runs check() often enough to catch the culprit, seldom enough that its cost
  /// per change stays constant.
  void after_change() LOOM_REQUIRES(mutex);

  const int device;
  SegmentSource& source;
  const std::size_t redzone_bytes;
  mutable Mutex mutex;
  // Set while `callbacks` has any. Relaxed: what it announces is read under the lock, and a thread
  // that must see a change was told of it by synchronisation of its own.
  std::atomic<bool> has_callbacks{false};
  std::shared_ptr<const AllocatorCallbacks> callbacks LOOM_GUARDED_BY(mutex);

  detail::BlockStore store LOOM_GUARDED_BY(mutex);
  PoolGroup default_group LOOM_GUARDED_BY(mutex);
  std::map<PoolId, std::unique_ptr<PoolGroup>> private_groups LOOM_GUARDED_BY(mutex);
  std::map<std::byte*, std::unique_ptr<Segment>> segments LOOM_GUARDED_BY(mutex);
  detail::SegmentTable table LOOM_GUARDED_BY(mutex);
  detail::PendingFrees pending LOOM_GUARDED_BY(mutex);
  // Pending blocks that were freed during a capture: they wait for its end first.
  std::vector<Block*> held LOOM_GUARDED_BY(mutex);
  // Blocks that became free while there was no host memory to note it: linked through
  // Block::free_next, allocated or pending as far as all others know.
  Block* postponed LOOM_GUARDED_BY(mutex) = nullptr;

  AllocatorConfig config LOOM_GUARDED_BY(mutex);  // round_up lives in `callbacks`
  double fraction LOOM_GUARDED_BY(mutex) = 1.0;
  detail::StatTracker stats LOOM_GUARDED_BY(mutex);
  mutable detail::TraceHistory history LOOM_GUARDED_BY(mutex);
  std::uint64_t clock LOOM_GUARDED_BY(mutex) = 0;  // allocations asked for; segments age by it
  std::size_t changes_since_check LOOM_GUARDED_BY(mutex) = 0;
};

}  // namespace loom
