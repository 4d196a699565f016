// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/free_list.h"

#include <functional>

namespace loom::detail {

bool FreeList::BySize::operator()(const Block* a, const Block* b) const noexcept {
  if (a->size != b->size) return a->size < b->size;
  return std::less<>{}(a->address, b->address);
}

bool FreeList::BySize::operator()(const Block* a, std::size_t size) const noexcept {
  return a->size < size;
}

bool FreeList::BySize::operator()(std::size_t size, const Block* b) const noexcept {
  return size < b->size;
}

Block* FreeList::best_large_fit(std::size_t size) const noexcept {
  const auto found = large_.lower_bound(size);
  return found == large_.end() ? nullptr : *found;
}

bool FreeList::contains(const Block& block) const noexcept {
  if (block.size > kLargestBin) {
    const auto found = large_.find(const_cast<Block*>(&block));
    return found != large_.end() && *found == &block;
  }
  if (block.free_previous != nullptr) return block.free_previous->free_next == &block;
  return bins_ != nullptr && bins_->heads[bin_of(block.size)] == &block;
}

}  // namespace loom::detail
