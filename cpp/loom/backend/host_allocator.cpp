// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/host_allocator.h"

#include "loom/backend/stream.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/memory/pinned_pool.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>

namespace loom {
namespace {

/// Everything that a stream had been given when a block was dropped.
struct PinnedUse {
  const Queue* queue;
  std::uint64_t position;
};

/// ATen's cache with loom's memory below it. A block that streams have used is kept until each has
/// passed the position that it had when the block was dropped.
struct PinnedCache final : at::CachingHostAllocatorImpl<c10::Stream, PinnedUse> {
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::memcpy(dest, src, count);
  }

 private:
  using Block = at::HostBlock<c10::Stream>;

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

  void record_stream(std::optional<std::vector<PinnedUse>>& events, c10::Stream stream) override {
    const Queue& queue = queue_of(stream);
    if (!events.has_value()) events.emplace();
    events->push_back({&queue, queue.submitted()});
  }

  bool query_event(PinnedUse& use) override { return use.queue->timeline().reached(use.position); }

  c10::Stream get_current_stream() const override { return current_stream(); }

  bool stream_is_capturing(c10::Stream /*stream*/) const override { return false; }
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
