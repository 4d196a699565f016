// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/block_index.h"

#include "loom/memory/size_classes.h"

#include <iterator>

namespace loom::detail {

BlockIndex::BlockIndex(std::byte* segment, std::size_t bytes) : segment_(segment) {
  if (bytes <= BitIndex::kBits * kMinBlockBytes) slots_ = std::make_unique<Slots>();
}

std::size_t BlockIndex::slot(const std::byte* address) const noexcept {
  return static_cast<std::size_t>(address - segment_) / kMinBlockBytes;
}

void BlockIndex::insert(std::byte* address, Block* block) {
  if (slots_ == nullptr) {
    map_.emplace(address, block);
    return;
  }
  slots_->blocks[slot(address)] = block;
  slots_->starts.set(slot(address));
}

void BlockIndex::erase(std::byte* address) {
  if (slots_ == nullptr) {
    map_.erase(address);
    return;
  }
  slots_->blocks[slot(address)] = nullptr;
  slots_->starts.clear(slot(address));
}

Block* BlockIndex::at(const std::byte* address) const noexcept {
  if (slots_ == nullptr) {
    const auto found = map_.find(address);
    return found == map_.end() ? nullptr : found->second;
  }
  if (static_cast<std::size_t>(address - segment_) % kMinBlockBytes != 0) return nullptr;
  return slots_->blocks[slot(address)];
}

Block* BlockIndex::containing(const std::byte* address) const noexcept {
  if (slots_ == nullptr) return std::prev(map_.upper_bound(address))->second;
  return slots_->blocks[slots_->starts.last_up_to(slot(address))];
}

}  // namespace loom::detail
