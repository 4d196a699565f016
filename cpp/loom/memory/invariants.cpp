// SPDX-License-Identifier: BSD-3-Clause
// What always holds in the allocator's structures, checked by walking them.
#include "loom/base/check.h"
#include "loom/memory/allocator_state.h"

#include <cstdint>

namespace loom {
namespace {

using detail::Block;
using detail::BlockState;
using detail::Segment;
using detail::SegmentTable;
using detail::StatTracker;

#ifdef LOOM_CHECKS
constexpr bool kChecks = true;
#else
constexpr bool kChecks = false;
#endif

/// What a walk over all blocks finds, by small and large pool; must equal the statistics.
struct Totals {
  std::int64_t segments[2] = {}, reserved[2] = {}, allocated[2] = {}, allocated_bytes[2] = {},
               active[2] = {}, active_bytes[2] = {}, requested[2] = {}, split[2] = {},
               split_bytes[2] = {};
  std::size_t pending = 0;
};

void check_block(const Segment& segment, const Block& block) {
  LOOM_ASSERT(block.segment == &segment, "a block knows its segment");
  LOOM_ASSERT(block.size > 0 && block.size % detail::kMinBlockBytes == 0,
              "block sizes are multiples of 512");
  LOOM_ASSERT(segment.index.at(block.address) == &block, "the index knows every block");
  if (block.next != nullptr) {
    LOOM_ASSERT(block.next->previous == &block, "the chain of blocks goes both ways");
    LOOM_ASSERT(block.next->address == block.address + block.size, "blocks have no gaps");
    LOOM_ASSERT(block.state != BlockState::kFree || block.next->state != BlockState::kFree,
                "free neighbours are merged");
  }
  const bool free = block.state == BlockState::kFree;
  LOOM_ASSERT(free == (block.requested == 0), "free blocks were asked for by nobody");
  LOOM_ASSERT(!free || block.notes == nullptr, "free blocks have no notes");
  LOOM_ASSERT(!free || segment.pool->free_blocks().contains(block),
              "free blocks are in their pool's free list");
  LOOM_ASSERT(block.pending_queues == 0 || block.state == BlockState::kPending,
              "only pending blocks wait");
}

void add_block(const Block& block, bool large, Totals& totals) {
  const auto size = static_cast<std::int64_t>(block.size);
  if (block.state == BlockState::kFree) {
    totals.split[large] += block.is_split() ? 1 : 0;
    totals.split_bytes[large] += block.is_split() ? size : 0;
    return;
  }
  totals.active[large] += 1;
  totals.active_bytes[large] += size;
  totals.requested[large] += static_cast<std::int64_t>(block.requested);
  totals.pending += block.pending_queues;
  if (block.state != BlockState::kAllocated) return;
  totals.allocated[large] += 1;
  totals.allocated_bytes[large] += size;
}

void check_segment(const Segment& segment, const SegmentTable& table, Totals& totals) {
  const bool large = segment.pool->is_large();
  totals.segments[large] += 1;
  totals.reserved[large] += static_cast<std::int64_t>(segment.bytes);
  LOOM_ASSERT(table.find(segment.address) == &segment &&
                  table.find(segment.address + segment.bytes - 1) == &segment,
              "the table knows every segment");
  LOOM_ASSERT(segment.first->previous == nullptr && segment.first->address == segment.address,
              "the first block starts the segment");
  std::size_t covered = 0;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    check_block(segment, *block);
    add_block(*block, large, totals);
    covered += block->size;
  }
  LOOM_ASSERT(covered == segment.bytes, "blocks cover their segment");
}

void check_totals(const Totals& totals, const StatTracker& stats) {
  const auto equal = [](const detail::StatGroup& group, const std::int64_t (&found)[2]) {
    const MemoryStatArray value = group.value();
    return value[1].current == found[0] && value[2].current == found[1] &&
           value[0].peak >= value[0].current;
  };
  LOOM_ASSERT(equal(stats.segment, totals.segments), "segments are counted");
  LOOM_ASSERT(equal(stats.reserved_bytes, totals.reserved), "reserved bytes are counted");
  LOOM_ASSERT(equal(stats.allocation, totals.allocated), "allocations are counted");
  LOOM_ASSERT(equal(stats.allocated_bytes, totals.allocated_bytes), "their bytes are counted");
  LOOM_ASSERT(equal(stats.active, totals.active), "active blocks are counted");
  LOOM_ASSERT(equal(stats.active_bytes, totals.active_bytes), "active bytes are counted");
  LOOM_ASSERT(equal(stats.requested_bytes, totals.requested), "requested bytes are counted");
  LOOM_ASSERT(equal(stats.inactive_split, totals.split), "split free blocks are counted");
  LOOM_ASSERT(equal(stats.inactive_split_bytes, totals.split_bytes), "their bytes are counted");
}

}  // namespace

void CachingAllocator::State::check() const {
  Totals totals;
  for (const auto& [address, segment] : segments) {
    LOOM_ASSERT(address == segment->address, "segments are found by their address");
    check_segment(*segment, table, totals);
  }
  check_totals(totals, stats);
  LOOM_ASSERT(totals.pending == pending.entries(), "every pending free is queued once");
  std::size_t owned = default_group.segments;
  for (const auto& [id, group] : private_groups) owned += group->segments;
  LOOM_ASSERT(owned == segments.size(), "every segment belongs to a group");
}

void CachingAllocator::State::after_change() {
  if (!kChecks) return;
  const auto blocks = static_cast<std::size_t>(stats.active.current()) + segments.size();
  if (++changes_since_check < blocks) return;
  changes_since_check = 0;
  check();
}

void CachingAllocator::check_invariants() const {
  MutexLock lock(state_->mutex);
  state_->check();
}

}  // namespace loom
