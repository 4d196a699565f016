// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Free blocks by size. Sizes up to 2 MiB have a bin each (a list, last in first out, so that the
// memory handed out is warm in the cache), found through a bit index; larger blocks are in a set
// ordered by size and address. Either way best_fit() gives the smallest block that is large enough.
// Knows sizes and nothing else. Thread: none of its own; the caller locks.

#include "loom/memory/bit_index.h"

#include <array>
#include <cstddef>
#include <memory>
#include <set>

namespace loom::detail {

struct Block;

class FreeList {
 public:
  void insert(Block& block);
  /// Requires: in the list, with the size it was inserted with.
  void erase(Block& block) noexcept;
  /// Null when there is none of at least `size`. Stays in the list.
  [[nodiscard]] Block* best_fit(std::size_t size) const noexcept;
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// For checks: trusts the block's own links.
  [[nodiscard]] bool contains(const Block& block) const noexcept;

 private:
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const noexcept;
    bool operator()(const Block* a, std::size_t size) const noexcept;
    bool operator()(std::size_t size, const Block* b) const noexcept;
  };
  /// Bin i holds the blocks of (i + 1) * 512 bytes; its bit is set unless it is empty.
  struct Bins {
    BitIndex filled;
    std::array<Block*, BitIndex::kBits> heads{};
  };

  std::unique_ptr<Bins> bins_;  // made with the first block that belongs there
  std::set<Block*, BySize> large_;
  std::size_t count_ = 0;
};

}  // namespace loom::detail
