// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The free blocks of one owner and size range: takes blocks out, splits them, takes them back and
// merges them with free neighbours. It knows addresses and sizes; who owns it, in which order
// memory is used, and when a segment may go is the allocator's business.
// Thread: none of its own; the caller locks.

#include "loom/memory/block.h"
#include "loom/memory/free_list.h"

#include <cstddef>
#include <cstdint>
#include <deque>

namespace loom::detail {

/// Block objects, recycled so that splitting costs no heap allocation.
class BlockStore {
 public:
  [[nodiscard]] Block& make();
  void recycle(Block& block) noexcept;

 private:
  std::deque<Block> blocks_;
  Block* unused_ = nullptr;  // linked through Block::next
};

/// How the free blocks that share their segment with others changed.
struct SplitChange {
  std::int64_t blocks = 0, bytes = 0;
};

class BlockPool {
 public:
  BlockPool(BlockStore& store, bool large) : store_(store), large_(large) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  [[nodiscard]] bool is_large() const noexcept { return large_; }
  /// The smallest free block of at least `size`, or null. It stays free.
  [[nodiscard]] Block* best_fit(std::size_t size) const noexcept { return free_.best_fit(size); }
  /// Makes the free `block` allocated, cut to `size` when `split`; the rest becomes a free block.
  /// Throws: std::bad_alloc; then nothing has changed. The same holds for add_segment().
  SplitChange take(Block& block, std::size_t size, bool split);
  /// Makes `block` free, merged with its free neighbours; `block` may be gone afterwards.
  /// Requires: prepare_to_give_back() of the block.
  SplitChange give_back(Block& block) noexcept;
  /// Throws: std::bad_alloc; then nothing has changed.
  void prepare_to_give_back(const Block& block) { free_.prepare(block.size); }

  /// Makes one free block of the whole segment. Requires: it has no blocks.
  void add_segment(Segment& segment);
  /// Drops the segment's only block. Requires: segment.is_free().
  void remove_segment(Segment& segment) noexcept;

  [[nodiscard]] const FreeList& free_blocks() const noexcept { return free_; }

 private:
  /// A block that its segment's index and the free list know; the caller links it to neighbours.
  Block& make_free_block(Segment& segment, std::byte* address, std::size_t size);
  /// Joins `block` and its next neighbour. Requires: neither is in the free list.
  void absorb_next(Block& block) noexcept;

  BlockStore& store_;
  FreeList free_;
  const bool large_;
};

}  // namespace loom::detail
