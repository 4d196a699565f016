// SPDX-License-Identifier: BSD-3-Clause
// Life and settings of the allocator, its private pools and statistics.
#include "loom/memory/caching_allocator.h"

#include "loom/base/check.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/memory/allocator_state.h"
#include "loom/memory/redzone.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

namespace loom {

CachingAllocator::State::State(int device_index, SegmentSource& segment_source, std::size_t redzone)
    : device(device_index),
      source(segment_source),
      redzone_bytes(redzone),
      default_group({0, 0}, store) {
  LOOM_CHECK(source.granularity() % detail::SegmentTable::kGranuleBytes == 0,
             "CachingAllocator: expected a source with segments of multiples of 2 MiB, got "
             "a granularity of ",
             source.granularity(), " bytes");
}

CachingAllocator::CachingAllocator(int device, SegmentSource& source, std::size_t redzone_bytes)
    : state_(std::make_unique<State>(device, source, redzone_bytes)) {}

CachingAllocator::~CachingAllocator() {
  if (in_bad_fork()) return;  // the memory is the parent's, and nothing can be waited for
  detail::WaitList waits;
  {
    MutexLock lock(state_->mutex);
    for (const auto& [address, segment] : state_->segments) {
      waits.add(segment->queue->timeline(), segment->queue->submitted());
    }
    state_->pending.add_waits(waits);
  }
  // Without the lock: a command that is waited for may free memory of this allocator.
  if (!exiting()) waits.wait();
  MutexLock lock(state_->mutex);  // nobody else is left; for the analysis only
  for (const auto& [address, segment] : state_->segments) {
    detail::unpoison(segment->address, segment->bytes);
    state_->source.unmap_segment(segment->address, segment->bytes);
  }
}

// Pools

PoolId CachingAllocator::new_pool_id() {
  static std::atomic<std::uint64_t> last{0};
  // Relaxed: only uniqueness matters.
  return {0, last.fetch_add(1, std::memory_order_relaxed) + 1};
}

void CachingAllocator::begin_allocate_to_pool(PoolId pool,
                                              std::function<bool(const Queue&)> filter) {
  const bool is_private = pool != PoolId{0, 0};
  LOOM_CHECK(is_private,
             "CachingAllocator::begin_allocate_to_pool: expected a private pool's id "
             "(new_pool_id()), got {0, 0}");
  LOOM_CHECK(filter != nullptr,
             "CachingAllocator::begin_allocate_to_pool: expected a filter, got none");
  MutexLock lock(state_->mutex);
  State::PoolGroup& group = state_->make_group(pool);
  try {
    state_->change_callbacks([&](AllocatorCallbacks& callbacks) {
      for (const AllocatorCallbacks::Capture& capture : callbacks.captures) {
        LOOM_CHECK(capture.pool != pool,
                   "CachingAllocator::begin_allocate_to_pool: expected a pool that nobody "
                   "allocates to, got {",
                   pool.first, ", ", pool.second, "} again; end_allocate_to_pool() comes first");
      }
      callbacks.captures.push_back({pool, std::move(filter)});
    });
  } catch (...) {
    state_->drop_if_unused(group);
    throw;
  }
  ++group.references;
}

void CachingAllocator::end_allocate_to_pool(PoolId pool) {
  MutexLock lock(state_->mutex);
  const bool ended = state_->callbacks != nullptr && state_->callbacks->end(pool);
  LOOM_CHECK(ended, "CachingAllocator::end_allocate_to_pool: expected the pool of a begin, got {",
             pool.first, ", ", pool.second, "}");
  try {
    state_->change_callbacks([](const AllocatorCallbacks&) {});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the next change does it
  }
  state_->release_held();
  state_->after_change();
}

void CachingAllocator::release_pool(PoolId pool) {
  MutexLock lock(state_->mutex);
  const auto found = state_->private_groups.find(pool);
  LOOM_CHECK(found != state_->private_groups.end() && found->second->references > 0,
             "CachingAllocator::release_pool: expected a pool with a begin that was not yet "
             "released, got {",
             pool.first, ", ", pool.second, "}");
  --found->second->references;
  state_->drop_if_unused(*found->second);
}

CachingAllocator::State::PoolGroup& CachingAllocator::State::group_of(PoolId pool) {
  if (pool == PoolId{0, 0}) [[likely]] {
    return default_group;
  }
  // A pool that was released since the client was asked is as good as none.
  const auto found = private_groups.find(pool);
  return found == private_groups.end() ? default_group : *found->second;
}

CachingAllocator::State::PoolGroup& CachingAllocator::State::make_group(PoolId pool) {
  if (const auto found = private_groups.find(pool); found != private_groups.end()) {
    return *found->second;
  }
  auto made = std::make_unique<PoolGroup>(pool, store);
  return *private_groups.emplace(pool, std::move(made)).first->second;
}

void CachingAllocator::State::drop_if_unused(PoolGroup& group) noexcept {
  if (group.is_private() && group.references == 0 && group.segments == 0) {
    private_groups.erase(group.id);
  }
}

// Callbacks and history

std::shared_ptr<const AllocatorCallbacks> CachingAllocator::State::callbacks_now() const {
  static const auto none = std::make_shared<const AllocatorCallbacks>();
  MutexLock lock(mutex);
  return callbacks == nullptr ? none : callbacks;
}

void CachingAllocator::State::change_callbacks(
    const std::function<void(AllocatorCallbacks&)>& change) {
  auto changed = callbacks == nullptr ? std::make_shared<AllocatorCallbacks>()
                                      : std::make_shared<AllocatorCallbacks>(*callbacks);
  std::erase_if(changed->captures, [](const auto& capture) { return !capture.under_way(); });
  change(*changed);
  // Relaxed: see the declaration.
  has_callbacks.store(changed->any(), std::memory_order_relaxed);
  callbacks = std::move(changed);
}

CachingAllocator::State::Context CachingAllocator::State::ask_for_context() const {
  const auto functions = callbacks_now();
  return functions->context ? functions->context() : nullptr;
}

void CachingAllocator::State::add_trace(TraceEntry::Action action, void* address, std::size_t size,
                                        const Queue* queue, PoolId pool, const Context& context) {
  TraceEntry entry{.action = action,
                   .address = address,
                   .size = size,
                   .queue = queue,
                   .context = context,
                   .pool = pool};
  if (action == TraceEntry::Action::kOutOfMemory) {
    entry.free_bytes = source.limit() - std::min(source.limit(), source.mapped());
  }
  try {
    history.add(std::move(entry));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see the declaration
  }
}

void CachingAllocator::record_history(std::size_t max_entries,
                                      std::function<std::shared_ptr<void>()> context) {
  MutexLock lock(state_->mutex);
  state_->history.restart(max_entries);
  state_->change_callbacks([&](AllocatorCallbacks& callbacks) {
    callbacks.context = max_entries == 0 ? nullptr : std::move(context);
  });
}

std::vector<TraceEntry> CachingAllocator::history() const {
  MutexLock lock(state_->mutex);
  return state_->history.entries();
}

// Statistics and settings

MemoryStats CachingAllocator::stats() const {
  MutexLock lock(state_->mutex);
  MemoryStats stats = state_->stats.value();
  stats.max_split_size = state_->config.max_split_size;
  return stats;
}

std::pair<std::size_t, std::size_t> CachingAllocator::allocated_and_reserved() const {
  MutexLock lock(state_->mutex);
  return {static_cast<std::size_t>(state_->stats.allocated_bytes.current()),
          static_cast<std::size_t>(state_->reserved())};
}

void CachingAllocator::reset_accumulated_stats() {
  MutexLock lock(state_->mutex);
  state_->stats.reset_accumulated();
  reset_accumulated_scratch(state_->device);
}

void CachingAllocator::reset_peak_stats() {
  MutexLock lock(state_->mutex);
  state_->stats.reset_peaks();
  reset_scratch_peak(state_->device);
}

std::pair<std::size_t, std::size_t> CachingAllocator::memory_info() const {
  const std::size_t total = state_->source.limit();
  const auto scratch = static_cast<std::size_t>(scratch_bytes(state_->device).current);
  return {total - std::min(total, state_->source.mapped() + scratch), total};
}

void CachingAllocator::set_memory_fraction(double fraction) {
  LOOM_CHECK(fraction > 0.0 && fraction <= 1.0,
             "CachingAllocator::set_memory_fraction: expected a fraction in (0, 1], got ",
             fraction);
  MutexLock lock(state_->mutex);
  state_->fraction = fraction;
}

double CachingAllocator::memory_fraction() const {
  MutexLock lock(state_->mutex);
  return state_->fraction;
}

void CachingAllocator::set_config(AllocatorConfig config) {
  LOOM_CHECK(config.max_split_size > detail::kLargeSegmentBytes,
             "CachingAllocator::set_config: expected a max_split_size above ",
             detail::kLargeSegmentBytes, " bytes, got ", config.max_split_size);
  const double threshold = config.garbage_collection_threshold;
  LOOM_CHECK(threshold >= 0.0 && threshold < 1.0,
             "CachingAllocator::set_config: expected a garbage_collection_threshold in [0, 1), "
             "got ",
             threshold);
  MutexLock lock(state_->mutex);
  state_->change_callbacks([&](AllocatorCallbacks& callbacks) {
    callbacks.round_up = std::exchange(config.round_up, nullptr);
  });
  state_->config = std::move(config);
}

}  // namespace loom
