// SPDX-License-Identifier: BSD-3-Clause
// The allocator's memory as plain values.
#include "loom/device/queue.h"
#include "loom/memory/allocator_state.h"

namespace loom {
namespace {

using detail::Block;
using detail::BlockState;

}  // namespace

BlockSnapshot CachingAllocator::State::snapshot_of(const Block& block) {
  BlockSnapshot snapshot{.address = block.address,
                         .size = block.size,
                         .requested_size = block.requested,
                         .allocated = block.state == BlockState::kAllocated,
                         .active = block.state != BlockState::kFree,
                         .name = {},
                         .context = nullptr,
                         .queue = block.segment->queue};
  if (block.notes != nullptr) {
    snapshot.name = block.notes->name;
    snapshot.context = block.notes->context;
  }
  return snapshot;
}

std::vector<SegmentSnapshot> CachingAllocator::snapshot() const {
  std::vector<SegmentSnapshot> result;
  MutexLock lock(state_->mutex);
  result.reserve(state_->segments.size());
  for (const auto& [address, segment] : state_->segments) {
    SegmentSnapshot& entry = result.emplace_back();
    entry.address = segment->address;
    entry.total_size = segment->bytes;
    entry.queue = segment->queue;
    entry.is_large = segment->pool->is_large();
    entry.pool = segment->group->id;
    entry.context = segment->context;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      entry.blocks.push_back(State::snapshot_of(*block));
      if (block->state == BlockState::kAllocated) entry.allocated_size += block->size;
      if (block->state == BlockState::kFree) continue;
      entry.active_size += block->size;
      entry.requested_size += block->requested;
    }
  }
  state_->trace(TraceEntry::Action::kSnapshot, nullptr,
                static_cast<std::size_t>(state_->reserved()), nullptr, {0, 0}, nullptr);
  return result;
}

}  // namespace loom
