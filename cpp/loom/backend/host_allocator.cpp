// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/host_allocator.h"

#include "loom/backend/stream.h"
#include "loom/base/mutex.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/memory/pinned_pool.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace loom {
namespace {

/// Everything that a stream had been given when a block was dropped.
struct PinnedUse {
  const Queue* queue;
  std::uint64_t position;
};

/// The streams that have used a block, in the place of ATen's set of them. It looks empty to ATen,
/// which gets a block back only when no stream uses it any more: ATen notes the uses of a block
/// that is dropped where nothing may be thrown.
class PinnedUses {
 public:
  void insert(const c10::Stream& stream) {
    const Queue* const queue = &queue_of(stream);
    const auto same = [&](const PinnedUse& use) { return use.queue == queue; };
    if (std::none_of(uses_.begin(), uses_.end(), same)) uses_.push_back({queue, 0});
  }
  /// The block is dropped now.
  void drop() noexcept {
    for (PinnedUse& use : uses_) use.position = use.queue->submitted();
  }
  /// Whether all streams have passed what they had been given then.
  [[nodiscard]] bool passed() const noexcept {
    return std::all_of(uses_.begin(), uses_.end(), [](const PinnedUse& use) {
      return use.queue->timeline().reached(use.position);
    });
  }
  void forget() noexcept { uses_.clear(); }

  [[nodiscard]] bool empty() const noexcept { return true; }
  [[nodiscard]] std::size_t size() const noexcept { return 0; }
  void clear() noexcept {}
  operator ska::flat_hash_set<c10::Stream>() const { return {}; }

 private:
  std::vector<PinnedUse> uses_;
};

struct PinnedBlock : at::HostBlock<c10::Stream> {
  using HostBlock::HostBlock;

  PinnedUses streams_;             ///< instead of ATen's
  PinnedBlock* dropped = nullptr;  ///< the next one that was dropped
};

/// ATen's cache with loom's memory below it. A block that streams have used is kept until each has
/// passed the position that it had when the block was dropped.
struct PinnedCache final : at::CachingHostAllocatorImpl<c10::Stream, PinnedUse, PinnedBlock> {
  using Base = at::CachingHostAllocatorImpl<c10::Stream, PinnedUse, PinnedBlock>;

  std::pair<void*, void*> allocate(std::size_t size) override {
    free_dropped();
    return Base::allocate(size);
  }

  void free(void* ctx) noexcept override {
    if (ctx == nullptr) return;
    auto* const block = static_cast<PinnedBlock*>(ctx);
    block->streams_.drop();
    {
      MutexLock lock(mutex_);
      block->dropped = std::exchange(dropped_, block);
    }
    free_dropped();
  }

  void empty_cache() override {
    free_dropped();
    Base::empty_cache();
  }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::memcpy(dest, src, count);
  }

 private:
  using Block = PinnedBlock;

  /// Gives ATen the blocks that no stream uses any more, but those that it has no memory for.
  void free_dropped() noexcept {
    MutexLock lock(mutex_);
    for (PinnedBlock** place = &dropped_; *place != nullptr;) {
      PinnedBlock* const block = *place;
      if (block->streams_.passed()) {
        *place = block->dropped;  // before the block is another owner's, or gone
        if (try_free(*block)) continue;
        *place = block;
      }
      place = &block->dropped;
    }
  }

  bool try_free(PinnedBlock& block) noexcept {
    block.streams_.forget();
    try {
      Base::free(&block);
      return true;
    } catch (const std::bad_alloc&) {
      return false;  // it can be given again
    }
  }

  void allocate_host_memory(std::size_t size, void** ptr) override {
    note_device_used();  // as CUDA's: a child that is forked from here on cannot use loom
    *ptr = map_pinned(size);
    if (*ptr == nullptr) {
      empty_cache();  // what is cached may be what the system lacks
      *ptr = map_pinned(size);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, *ptr != nullptr, "pin_memory: the system refused to map ",
                     c10::CachingAllocator::format_size(size), " of pinned host memory");
  }

  void free_block(Block* block) override { unmap_pinned(block->ptr_); }

  c10::Stream get_current_stream() const override { return current_stream(); }

  bool stream_is_capturing(c10::Stream /*stream*/) const override { return false; }

  Mutex mutex_;
  PinnedBlock* dropped_ LOOM_GUARDED_BY(mutex_) = nullptr;
};

void delete_pinned(void* context);

/// In a forked child all of it throws, as loom's own locks do: ATen's may have been inherited as
/// taken as well.
struct PinnedAllocator final : at::CachingHostAllocatorInterface<PinnedCache, delete_pinned> {
  using Base = at::CachingHostAllocatorInterface<PinnedCache, delete_pinned>;

  at::DataPtr allocate(std::size_t size) override {
    check_not_forked();
    return Base::allocate(size);
  }
  bool record_event(void* ptr, void* ctx, c10::Stream stream) override {
    check_not_forked();
    return Base::record_event(ptr, ctx, stream);
  }
  void empty_cache() override {
    check_not_forked();
    Base::empty_cache();
  }
  at::HostStats get_stats() override {
    check_not_forked();
    return Base::get_stats();
  }
  void reset_accumulated_stats() override {
    check_not_forked();
    Base::reset_accumulated_stats();
  }
  void reset_peak_stats() override {
    check_not_forked();
    Base::reset_peak_stats();
  }
};

PinnedAllocator& instance() {
  static PinnedAllocator* const made = new PinnedAllocator;  // leaked: deleters run until the end
  return *made;
}

void delete_pinned(void* context) {
  // A child has neither the queues that used the block nor, perhaps, a lock that can be taken.
  if (in_bad_fork()) return;
  instance().free(context);
}

}  // namespace

at::HostAllocator& host_allocator() { return instance(); }

bool record_pinned_use(const void* ptr, void* ctx, const c10::Stream& stream) {
  return instance().record_event(const_cast<void*>(ptr), ctx, stream);
}

bool record_pinned_use(const void* ptr, void* ctx, const Queue& queue) {
  return record_pinned_use(ptr, ctx, stream_of(queue));
}

}  // namespace loom
