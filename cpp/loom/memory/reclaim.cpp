// SPDX-License-Identifier: BSD-3-Clause
// What happens when the pools have no block: from cheap to dear, collect garbage, map a segment,
// return cached segments, wait for queues and return more.
#include "loom/device/failed_memory.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/memory/allocator_state.h"
#include "loom/memory/redzone.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace loom {
namespace {

using detail::WaitList;
using Action = TraceEntry::Action;

/// How often an allocation waits for queues: each wait covers what was in use when it began, and
/// other threads may have taken what it freed.
constexpr int kMaxWaits = 8;

/// A worker (or a core that runs blocks for it) never waits for a queue: its own cannot get on, and
/// others may be waiting for its own. At exit the workers are gone.
bool may_wait() noexcept { return !on_loom_thread() && !exiting(); }

}  // namespace

CachingAllocator::State::Block* CachingAllocator::State::allocate_slowly(const Request& request) {
  const std::size_t granularity = source.granularity();
  const std::size_t bytes = detail::segment_bytes(request.size, granularity);
  {
    MutexLock lock(mutex);
    collect_garbage();
    if (Block* block = map_and_take(request, bytes)) return block;
    free_postponed();
    if (detail::least_segment_bytes(request.size, granularity) > allowed_bytes()) {
      return out_of_memory(request);  // not even if everything were free
    }
    if (release_oversize(request)) {
      if (Block* block = map_and_take(request, bytes)) return block;
    }
    ++stats.alloc_retries;
  }
  for (int waits_done = 0;; ++waits_done) {
    WaitList waits;
    {
      MutexLock lock(mutex);
      if (Block* block = retry(request)) return block;
      pending.add_waits(waits);
      add_segment_waits({0, 0}, waits);
      if (waits.empty() || waits_done == kMaxWaits || !may_wait()) return out_of_memory(request);
      ++stats.sync_all_streams;
    }
    waits.wait(Timeline::Signals::kHandled);
  }
}

CachingAllocator::State::Block* CachingAllocator::State::retry(const Request& request) {
  free_postponed();
  if (Block* block = take_cached(request)) return block;
  release_free_segments({0, 0});
  release_scratch(device);
  const std::size_t granularity = source.granularity();
  if (Block* block = map_and_take(request, detail::segment_bytes(request.size, granularity))) {
    return block;
  }
  return map_and_take(request, detail::least_segment_bytes(request.size, granularity));
}

CachingAllocator::State::Block* CachingAllocator::State::out_of_memory(const Request& request) {
  ++stats.ooms;
  trace(Action::kOutOfMemory, nullptr, request.requested, &request.queue, request.pool,
        request.context);
  return nullptr;
}

std::size_t CachingAllocator::State::allowed_bytes() const {
  return static_cast<std::size_t>(static_cast<double>(source.limit()) * fraction);
}

bool CachingAllocator::State::may_unmap(const Segment& segment) const {
  return segment.is_free() && segment.group->may_shrink() &&
         segment.queue->timeline().reached(segment.last_use);
}

void CachingAllocator::State::collect_garbage() {
  if (config.garbage_collection_threshold <= 0.0) return;
  const auto target = static_cast<std::int64_t>(static_cast<double>(allowed_bytes()) *
                                                config.garbage_collection_threshold);
  if (reserved() <= target) return;
  std::vector<Segment*> unused;
  for (const auto& [address, segment] : segments) {
    if (segment->pool->is_large() && may_unmap(*segment)) unused.push_back(segment.get());
  }
  std::sort(unused.begin(), unused.end(),
            [](const Segment* a, const Segment* b) { return a->free_since < b->free_since; });
  for (Segment* segment : unused) {
    if (reserved() <= target) return;
    unmap(*segment);
  }
}

bool CachingAllocator::State::release_oversize(const Request& request) {
  if (config.max_split_size == SIZE_MAX) return false;
  std::vector<Segment*> oversize;
  for (const auto& [address, segment] : segments) {
    if (segment->queue == &request.queue && segment->group->id == request.pool &&
        segment->bytes >= config.max_split_size && may_unmap(*segment)) {
      oversize.push_back(segment.get());
    }
  }
  std::sort(oversize.begin(), oversize.end(),
            [](const Segment* a, const Segment* b) { return a->bytes < b->bytes; });
  const std::size_t needed = std::max(request.size, config.max_split_size);
  // The smallest that is enough by itself, else the largest ones until they are enough together.
  for (Segment* segment : oversize) {
    if (segment->bytes < needed) continue;
    unmap(*segment);
    return true;
  }
  std::size_t released = 0;
  while (released < needed && !oversize.empty()) {
    released += oversize.back()->bytes;
    unmap(*oversize.back());
    oversize.pop_back();
  }
  return released >= needed;
}

void CachingAllocator::State::release_free_segments(PoolId pool) {
  for (auto it = segments.begin(); it != segments.end();) {
    Segment& segment = *it->second;
    ++it;  // unmap() erases the entry
    if ((pool == PoolId{0, 0} || segment.group->id == pool) && may_unmap(segment)) unmap(segment);
  }
}

void CachingAllocator::State::add_segment_waits(PoolId pool, WaitList& waits) const {
  for (const auto& [address, segment] : segments) {
    if (!segment->is_free() || !segment->group->may_shrink()) continue;
    if (pool != PoolId{0, 0} && segment->group->id != pool) continue;
    waits.add(segment->queue->timeline(), segment->last_use);
  }
}

void CachingAllocator::State::unmap(Segment& segment) {
  const bool large = segment.pool->is_large();
  const auto amount = static_cast<std::int64_t>(segment.bytes);
  PoolGroup& group = *segment.group;
  segment.pool->remove_segment(segment);
  table.erase(segment);
  stats.segment.shrink(large, 1);
  stats.reserved_bytes.shrink(large, amount);
  if (group.is_private()) stats.private_reserved_bytes[group.id].shrink(large, amount);
  if (segment.oversize) stats.oversize_segments.shrink(1);
  ++stats.device_free;
  trace(Action::kSegmentFree, segment.address, segment.bytes, segment.queue, group.id, nullptr);
  detail::unpoison(segment.address, segment.bytes);
  FailedMemory::note_unmapped(segment.address, segment.bytes);
  source.unmap_segment(segment.address, segment.bytes);
  --group.segments;
  segments.erase(segment.address);
  drop_if_unused(group);
}

void CachingAllocator::empty_cache(PoolId pool) {
  check_not_forked();
  WaitList waits;
  {
    MutexLock lock(state_->mutex);
    state_->free_postponed();
    state_->take_in_pending();
    if (may_wait()) state_->add_segment_waits(pool, waits);
  }
  waits.wait(Timeline::Signals::kHandled);
  MutexLock lock(state_->mutex);
  state_->take_in_pending();
  state_->release_free_segments(pool);
  state_->after_change();
  if (pool == PoolId{0, 0}) release_scratch(state_->device);
}

}  // namespace loom
