// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/block_pool.h"

namespace loom::detail {

Block& BlockStore::make() {
  if (unused_ == nullptr) return blocks_.emplace_back();
  Block& block = *unused_;
  unused_ = block.next;
  block.next = nullptr;
  return block;
}

void BlockStore::recycle(Block& block) noexcept {
  block = Block{};
  block.next = unused_;
  unused_ = &block;
}

Block& BlockPool::make_free_block(Segment& segment, std::byte* address, std::size_t size) {
  Block& block = store_.make();
  block.address = address;
  block.size = size;
  block.segment = &segment;
  try {
    segment.index.insert(address, &block);
    free_.insert(block);
  } catch (...) {
    segment.index.erase(address);
    store_.recycle(block);
    throw;
  }
  return block;
}

SplitChange BlockPool::take(Block& block, std::size_t size, bool split) {
  SplitChange change;
  // First, as it may throw.
  Block* const rest =
      split ? &make_free_block(*block.segment, block.address + size, block.size - size) : nullptr;
  free_.erase(block);
  if (block.is_split()) {
    change.blocks -= 1;
    change.bytes -= static_cast<std::int64_t>(block.size);
  }
  block.state = BlockState::kAllocated;
  if (rest == nullptr) return change;

  rest->previous = &block;
  rest->next = block.next;
  if (block.next != nullptr) block.next->previous = rest;
  block.next = rest;
  block.size = size;
  change.blocks += 1;
  change.bytes += static_cast<std::int64_t>(rest->size);
  return change;
}

SplitChange BlockPool::give_back(Block& freed) noexcept {
  SplitChange change;
  Block* block = &freed;
  const auto leave = [&](Block& neighbour) {  // a neighbour is split by nature
    free_.erase(neighbour);
    change.blocks -= 1;
    change.bytes -= static_cast<std::int64_t>(neighbour.size);
  };
  if (Block* next = block->next; next != nullptr && next->state == BlockState::kFree) {
    leave(*next);
    absorb_next(*block);
  }
  if (Block* previous = block->previous;
      previous != nullptr && previous->state == BlockState::kFree) {
    leave(*previous);
    absorb_next(*previous);
    block = previous;
  }
  block->state = BlockState::kFree;
  block->requested = 0;
  free_.insert(*block);
  if (block->is_split()) {
    change.blocks += 1;
    change.bytes += static_cast<std::int64_t>(block->size);
  }
  return change;
}

void BlockPool::absorb_next(Block& block) noexcept {
  Block& gone = *block.next;
  block.size += gone.size;
  block.next = gone.next;
  if (gone.next != nullptr) gone.next->previous = &block;
  block.segment->index.erase(gone.address);
  store_.recycle(gone);
}

void BlockPool::add_segment(Segment& segment) {
  segment.first = &make_free_block(segment, segment.address, segment.bytes);
  segment.pool = this;
}

void BlockPool::remove_segment(Segment& segment) noexcept {
  free_.erase(*segment.first);
  segment.index.erase(segment.address);
  store_.recycle(*segment.first);
  segment.first = nullptr;
}

}  // namespace loom::detail
