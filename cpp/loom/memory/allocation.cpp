// SPDX-License-Identifier: BSD-3-Clause
// Taking blocks from the pools and giving them back.
#include "loom/base/check.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/memory/allocator_state.h"
#include "loom/memory/redzone.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <utility>

namespace loom {
namespace {

using detail::BlockState;
using Action = TraceEntry::Action;

[[noreturn]] void bad_free(const void* address) noexcept {
  char text[160];
  std::snprintf(text, sizeof text,
                "CachingAllocator::free: expected an address from allocate() that is not yet "
                "freed, got 0x%" PRIxPTR,
                reinterpret_cast<std::uintptr_t>(address));
  detail::assert_failed(__FILE__, __LINE__, "the address is allocated", text);
}

}  // namespace

// With a cached block and no callbacks this costs two uncontended lock operations, a lookup in the
// free list and a dozen additions.
void* CachingAllocator::allocate(std::size_t bytes, Queue& queue) {
  if (bytes == 0) return nullptr;
  if (in_bad_fork()) [[unlikely]] {
    check_not_forked();
  }
  const State::Request request = state_->make_request(bytes, queue);
  {
    MutexLock lock(state_->mutex);
    if (State::Block* block = state_->take_cached(request)) return block->address;
  }
  State::Block* block = state_->allocate_slowly(request);
  return block == nullptr ? nullptr : block->address;
}

void CachingAllocator::free(void* address) noexcept {
  // In a forked child the lock may be held for ever by a thread that is not there.
  if (address == nullptr || in_bad_fork()) return;
  State::Context context;
  try {
    context = state_->gather_context();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the history lacks where it was freed
  }
  MutexLock lock(state_->mutex);
  State::Block* block = state_->allocated_block(address);
  if (block == nullptr) bad_free(address);
  state_->free_block(*block, context);
}

void CachingAllocator::record_queue(void* address, Queue& queue) {
  if (address == nullptr) return;
  MutexLock lock(state_->mutex);
  State::Block* block = state_->allocated_block(address);
  LOOM_CHECK(block != nullptr,
             "CachingAllocator::record_queue: expected an address from allocate() that is not yet "
             "freed, got ",
             address);
  if (block->segment->queue == &queue) return;
  auto& queues = block->make_notes().other_queues;
  if (std::find(queues.begin(), queues.end(), &queue) == queues.end()) queues.push_back(&queue);
}

CachingAllocator::State::Request CachingAllocator::State::make_request(std::size_t bytes,
                                                                       Queue& queue) {
  Request request{.requested = bytes, .queue = queue, .context = nullptr};
  std::size_t wanted = std::min(bytes, detail::kMaxRequestBytes);
  if (has_callbacks.load(std::memory_order_relaxed)) [[unlikely]] {
    const auto functions = callbacks_now();
    if (functions->round_up) wanted = std::max(wanted, functions->round_up(wanted));
    if (functions->context) request.context = functions->context();
    for (const AllocatorCallbacks::Capture& capture : functions->captures) {
      if (!capture.under_way() || !capture.filter(queue)) continue;
      request.pool = capture.pool;
      break;
    }
  }
  request.size = detail::block_bytes(std::min(wanted + redzone_bytes, detail::kMaxRequestBytes));
  return request;
}

CachingAllocator::State::Block* CachingAllocator::State::take_cached(const Request& request) {
  if (!pending.empty()) take_in_pending();
  ++clock;
  BlockPool& pool = group_of(request.pool).pool(request.queue, detail::is_large(request.size));
  Block* block = pool.best_fit(request.size);
  if (block == nullptr || !detail::may_serve(block->size, request.size, config.max_split_size,
                                             config.max_non_split_rounding)) {
    return nullptr;
  }
  return hand_out(*block, request);
}

CachingAllocator::State::Block* CachingAllocator::State::map_and_take(const Request& request,
                                                                      std::size_t bytes) {
  if (in_use() + bytes > allowed_bytes()) return nullptr;
  auto* const address = static_cast<std::byte*>(source.map_segment(bytes));
  if (address == nullptr) return nullptr;
  LOOM_ASSERT(reinterpret_cast<std::uintptr_t>(address) % detail::SegmentTable::kGranuleBytes == 0,
              "the source's segments must be aligned to 2 MiB");

  Segment* segment = nullptr;
  try {
    segment = &adopt(address, bytes, request);
  } catch (...) {  // no host memory for what the allocator notes about it
    source.unmap_segment(address, bytes);
    throw;
  }
  return hand_out(*segment->first, request);
}

// Whatever throws comes first, or is taken back: a segment is known everywhere or nowhere.
CachingAllocator::State::Segment& CachingAllocator::State::adopt(std::byte* address,
                                                                 std::size_t bytes,
                                                                 const Request& request) {
  PoolGroup& group = group_of(request.pool);
  const bool large = detail::is_large(request.size);
  BlockPool& pool = group.pool(request.queue, large);
  detail::StatGroup* const private_bytes =
      group.is_private() ? &stats.private_reserved_bytes[group.id] : nullptr;
  table.reserve(bytes);
  const auto entry = segments.emplace(address, std::make_unique<Segment>(address, bytes)).first;
  Segment& segment = *entry->second;
  try {
    pool.add_segment(segment);
  } catch (...) {
    segments.erase(entry);
    throw;
  }
  table.insert(segment);
  segment.group = &group;
  segment.queue = &request.queue;
  segment.context = request.context;
  segment.oversize = bytes >= config.max_split_size;
  ++group.segments;
  poison_unused(segment, address, bytes);

  const auto amount = static_cast<std::int64_t>(bytes);
  stats.segment.grow(large, 1);
  stats.reserved_bytes.grow(large, amount);
  if (private_bytes != nullptr) private_bytes->grow(large, amount);
  if (segment.oversize) stats.oversize_segments.grow(1);
  ++stats.device_alloc;
  trace(Action::kSegmentAlloc, address, bytes, &request.queue, group.id, request.context);
  return segment;
}

CachingAllocator::State::Block* CachingAllocator::State::hand_out(Block& block,
                                                                  const Request& request) {
  BlockPool& pool = *block.segment->pool;
  const bool large = pool.is_large();
  const bool split = detail::should_split(block.size, request.size, large, config.max_split_size);
  std::unique_ptr<detail::BlockNotes> notes;
  if (request.context != nullptr) notes = std::make_unique<detail::BlockNotes>();
  const detail::SplitChange change = pool.take(block, request.size, split);
  if (notes != nullptr) notes->context = request.context;
  block.notes = std::move(notes);
  block.requested = request.requested;
  block.oversize = block.size >= config.max_split_size;
  detail::unpoison(block.address, block.requested);
  poison_unused(*block.segment, block.address + block.requested, block.size - block.requested);

  const auto bytes = static_cast<std::int64_t>(block.size);
  stats.allocation.grow(large, 1);
  stats.allocated_bytes.grow(large, bytes);
  stats.active.grow(large, 1);
  stats.active_bytes.grow(large, bytes);
  stats.requested_bytes.grow(large, static_cast<std::int64_t>(request.requested));
  stats.inactive_split.change(large, change.blocks);
  stats.inactive_split_bytes.change(large, change.bytes);
  if (block.oversize) stats.oversize_allocations.grow(1);
  trace(Action::kAlloc, block.address, request.requested, &request.queue, block.segment->group->id,
        request.context);
  after_change();
  return &block;
}

void CachingAllocator::State::prepare_to_free(const Block& block) {
  constexpr std::size_t kFirst = 16;
  block.segment->pool->prepare_to_give_back(block);
  if (block.notes == nullptr || block.notes->other_queues.empty()) return;
  if (held.size() == held.capacity()) held.reserve(std::max(kFirst, 2 * held.size()));
  for (const Queue* queue : block.notes->other_queues) pending.prepare(queue->timeline());
}

void CachingAllocator::State::postpone(Block& block) noexcept {
  block.free_next = postponed;
  postponed = &block;
}

void CachingAllocator::State::free_postponed() noexcept {
  release_held();
  for (Block* block = std::exchange(postponed, nullptr); block != nullptr;) {
    Block& next = *std::exchange(block, block->free_next);
    next.free_next = nullptr;
    next.state == BlockState::kAllocated ? free_block(next, nullptr) : complete_free(next, nullptr);
  }
}

void CachingAllocator::State::free_block(Block& block, const Context& context) noexcept {
  try {
    prepare_to_free(block);
  } catch (const std::bad_alloc&) {
    return postpone(block);
  }
  Segment& segment = *block.segment;
  const bool large = segment.pool->is_large();
  stats.allocation.shrink(large, 1);
  stats.allocated_bytes.shrink(large, static_cast<std::int64_t>(block.size));
  if (block.oversize) stats.oversize_allocations.shrink(1);
  // Commands up to here may use the block. The queue's own later commands come after them, but
  // unmapping does not: may_unmap() asks for this position.
  segment.last_use = segment.queue->submitted();
  trace(Action::kFreeRequested, block.address, block.requested, segment.queue, segment.group->id,
        context);

  block.state = BlockState::kPending;
  if (block.notes != nullptr && !block.notes->other_queues.empty()) [[unlikely]] {
    if (callbacks != nullptr && callbacks->capturing()) {
      held.push_back(&block);
      return;
    }
    for (const Queue* queue : block.notes->other_queues) {
      const std::uint64_t position = queue->submitted();
      if (!queue->timeline().reached(position)) pending.add(block, queue->timeline(), position);
    }
  }
  if (block.pending_queues == 0) complete_free(block, context);
  after_change();
}

void CachingAllocator::State::complete_free(Block& block, const Context& context) noexcept {
  Segment& segment = *block.segment;
  try {
    segment.pool->prepare_to_give_back(block);
  } catch (const std::bad_alloc&) {
    return postpone(block);
  }
  const bool large = segment.pool->is_large();
  trace(Action::kFreeCompleted, block.address, block.requested, segment.queue, segment.group->id,
        context);
  stats.active.shrink(large, 1);
  stats.active_bytes.shrink(large, static_cast<std::int64_t>(block.size));
  stats.requested_bytes.shrink(large, static_cast<std::int64_t>(block.requested));
  block.notes.reset();
  segment.free_since = clock;
  poison_unused(segment, block.address, block.size);
  const detail::SplitChange change = segment.pool->give_back(block);
  stats.inactive_split.change(large, change.blocks);
  stats.inactive_split_bytes.change(large, change.bytes);
}

void CachingAllocator::State::take_in_pending() noexcept {
  pending.take_reached([this](Block& block)
                           LOOM_NO_THREAD_SAFETY_ANALYSIS { complete_free(block, nullptr); });
}

void CachingAllocator::State::release_held() noexcept {
  if (callbacks != nullptr && callbacks->capturing()) return;
  try {
    for (; !held.empty(); held.pop_back()) {
      Block& block = *held.back();
      prepare_to_free(block);
      for (const Queue* queue : block.notes->other_queues) {
        pending.add(block, queue->timeline(), queue->submitted());
      }
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see the declaration
  }
  take_in_pending();
}

void CachingAllocator::State::poison_unused(const Segment& segment, const std::byte* address,
                                            std::size_t bytes) {
  if constexpr (detail::kPoisons) {
    if (!segment.group->is_private() && segment.queue->idle()) detail::poison(address, bytes);
  }
}

CachingAllocator::State::Block* CachingAllocator::State::allocated_block(
    const void* address) const {
  const Segment* segment = table.find(address);
  if (segment == nullptr) return nullptr;
  Block* block = segment->index.at(static_cast<const std::byte*>(address));
  return block != nullptr && block->state == BlockState::kAllocated ? block : nullptr;
}

}  // namespace loom
