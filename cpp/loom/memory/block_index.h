// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The blocks of one segment by address. Small segments, whose blocks come and go all the time,
// have a slot for every 512 bytes, so that all of this is O(1); larger ones keep an ordered map.
// Thread: none of its own; the caller locks.

#include "loom/memory/bit_index.h"
#include "loom/memory/size_classes.h"

#include <array>
#include <cstddef>
#include <map>
#include <memory>

namespace loom::detail {

struct Block;

class BlockIndex {
 public:
  BlockIndex(std::byte* segment, std::size_t bytes);

  void insert(std::byte* address, Block* block) {
    if (slots_ == nullptr) {
      map_.emplace(address, block);
      return;
    }
    slots_->blocks[slot(address)] = block;
    slots_->starts.set(slot(address));
  }
  void erase(std::byte* address) {
    if (slots_ == nullptr) {
      map_.erase(address);
      return;
    }
    slots_->blocks[slot(address)] = nullptr;
    slots_->starts.clear(slot(address));
  }
  /// The block that starts at `address`, or null. Requires: `address` inside the segment.
  [[nodiscard]] Block* at(const std::byte* address) const noexcept {
    if (slots_ == nullptr) return at_large(address);
    const bool aligned = static_cast<std::size_t>(address - segment_) % kMinBlockBytes == 0;
    return aligned ? slots_->blocks[slot(address)] : nullptr;
  }
  /// The block with the highest start that is not above `address`. Requires: as at().
  [[nodiscard]] Block* containing(const std::byte* address) const noexcept;

 private:
  /// A block of index i starts at segment + i * 512; `starts` has the bits of the slots in use.
  struct Slots {
    BitIndex starts;
    std::array<Block*, BitIndex::kBits> blocks{};
  };

  [[nodiscard]] std::size_t slot(const std::byte* address) const noexcept {
    return static_cast<std::size_t>(address - segment_) / kMinBlockBytes;
  }
  [[nodiscard]] Block* at_large(const std::byte* address) const noexcept;

  std::byte* const segment_;
  std::unique_ptr<Slots> slots_;  // null for segments larger than its 2 MiB
  std::map<const std::byte*, Block*> map_;
};

}  // namespace loom::detail
