// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Free blocks by size. Sizes up to 2 MiB have a bin each (a list, last in first out, so that the
// memory handed out is warm in the cache), found through a bit index; larger blocks are in a set
// ordered by size and address. Either way best_fit() gives the smallest block that is large enough.
// Knows sizes and nothing else. Thread: none of its own; the caller locks.

#include "loom/memory/bit_index.h"
#include "loom/memory/block.h"
#include "loom/memory/size_classes.h"

#include <array>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>

namespace loom::detail {

class FreeList {
 public:
  /// Throws: std::bad_alloc, unless prepare() came before; then it is not in the list.
  void insert(Block& block) {
    block.size > kLargestBin ? insert_large(block) : insert_in_bin(block);
    ++count_;
  }
  /// Has memory ready for one insert() of a block of at least `size`. Throws: std::bad_alloc.
  void prepare(std::size_t size) {
    if (size <= kLargestBin && bins_ == nullptr) [[unlikely]] {
      bins_ = std::make_unique<Bins>();
    }
    if (spare_.empty()) [[unlikely]] {
      spare_ = make_node();
    }
  }
  /// Requires: in the list, with the size it was inserted with.
  void erase(Block& block) noexcept {
    --count_;
    block.size > kLargestBin ? erase_large(block) : erase_from_bin(block);
  }
  /// Null when there is none of at least `size`, a multiple of 512. Stays in the list.
  [[nodiscard]] Block* best_fit(std::size_t size) const noexcept {
    if (size <= kLargestBin && bins_ != nullptr) {
      const std::size_t bin = bins_->filled.first_from(bin_of(size));
      if (bin != BitIndex::kNone) return bins_->heads[bin];
    }
    return best_large_fit(size);
  }
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

  using Large = std::set<Block*, BySize>;

  static constexpr std::size_t kLargestBin = BitIndex::kBits * kMinBlockBytes;

  [[nodiscard]] static Large::node_type make_node() {
    Large one;
    return one.extract(one.insert(nullptr).first);
  }
  void insert_large(Block& block) {
    if (spare_.empty()) spare_ = make_node();
    spare_.value() = &block;
    large_.insert(std::move(spare_));
  }
  // The entry is kept for the next one.
  void erase_large(Block& block) noexcept { spare_ = large_.extract(&block); }

  [[nodiscard]] static std::size_t bin_of(std::size_t size) noexcept {
    return size / kMinBlockBytes - 1;
  }
  void insert_in_bin(Block& block) {
    if (bins_ == nullptr) [[unlikely]] {
      bins_ = std::make_unique<Bins>();
    }
    const std::size_t bin = bin_of(block.size);
    Block*& head = bins_->heads[bin];
    block.free_previous = nullptr;
    block.free_next = head;
    if (head != nullptr) head->free_previous = &block;
    head = &block;
    bins_->filled.set(bin);
  }
  void erase_from_bin(Block& block) noexcept {
    if (block.free_next != nullptr) block.free_next->free_previous = block.free_previous;
    if (block.free_previous != nullptr) {
      block.free_previous->free_next = block.free_next;
      return;
    }
    const std::size_t bin = bin_of(block.size);
    bins_->heads[bin] = block.free_next;
    if (block.free_next == nullptr) bins_->filled.clear(bin);
  }
  [[nodiscard]] Block* best_large_fit(std::size_t size) const noexcept;

  std::unique_ptr<Bins> bins_;  // made with the first block that belongs there
  Large large_;
  Large::node_type spare_;
  std::size_t count_ = 0;
};

}  // namespace loom::detail
