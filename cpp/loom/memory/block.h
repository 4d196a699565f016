// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The nouns of the allocator. A segment is memory mapped from the source; it is covered by blocks
// without gaps, in a chain ordered by address. A block is free (in its pool's free list), allocated
// (a client has its address) or pending (freed by the client, still used by another queue).
// Plain data, guarded by the allocator's lock.

#include "loom/memory/block_index.h"
#include "loom/memory/size_classes.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace loom {
class Queue;
}

namespace loom::detail {

class BlockPool;
struct PoolGroup;
struct Segment;

enum class BlockState : std::uint8_t { kFree, kAllocated, kPending };

/// What few blocks have; kept out of the block so that this stays small.
struct BlockNotes {
  std::string name;
  std::vector<Queue*> other_queues;  ///< that use the block beside its own, each once
  std::shared_ptr<void> context;
};

/// Two free blocks are never neighbours. A block without neighbours is its whole segment.
struct Block {
  std::byte* address = nullptr;
  std::size_t size = 0;
  std::size_t requested = 0;  ///< bytes the client asked for; 0 when free
  Segment* segment = nullptr;
  Block* previous = nullptr;       ///< neighbours by address
  Block* next = nullptr;           ///< also links unused Block objects in the store
  Block* free_previous = nullptr;  ///< links of a free list's bin
  Block* free_next = nullptr;
  std::unique_ptr<BlockNotes> notes;
  std::uint32_t pending_queues = 0;  ///< queues that a pending block still waits for
  BlockState state = BlockState::kFree;
  bool oversize = false;  ///< counted as such when it was allocated

  [[nodiscard]] bool is_split() const noexcept { return previous != nullptr || next != nullptr; }
  [[nodiscard]] BlockNotes& make_notes() {
    if (notes == nullptr) notes = std::make_unique<BlockNotes>();
    return *notes;
  }
};

/// Belongs to one queue for as long as it is mapped.
struct Segment {
  Segment(std::byte* start, std::size_t size) : address(start), bytes(size), index(start, size) {}

  std::byte* const address;
  const std::size_t bytes;
  Block* first = nullptr;
  BlockPool* pool = nullptr;
  PoolGroup* group = nullptr;
  Queue* queue = nullptr;
  /// The queue's submitted() when a block of this segment was last freed. The host may not unmap
  /// the segment before the queue's timeline has reached it.
  std::uint64_t last_use = 0;
  /// The allocator's clock when a block of it last became free.
  std::uint64_t free_since = 0;
  bool oversize = false;
  std::shared_ptr<void> context;
  BlockIndex index;

  [[nodiscard]] bool is_free() const noexcept {
    return first->state == BlockState::kFree && first->next == nullptr;
  }
};

}  // namespace loom::detail
