// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/block_index.h"

#include <iterator>

namespace loom::detail {

BlockIndex::BlockIndex(std::byte* segment, std::size_t bytes) : segment_(segment) {
  if (bytes <= BitIndex::kBits * kMinBlockBytes) slots_ = std::make_unique<Slots>();
}

Block* BlockIndex::at_large(const std::byte* address) const noexcept {
  const auto found = map_.find(address);
  return found == map_.end() ? nullptr : found->second;
}

Block* BlockIndex::containing(const std::byte* address) const noexcept {
  if (slots_ == nullptr) return std::prev(map_.upper_bound(address))->second;
  return slots_->blocks[slots_->starts.last_up_to(slot(address))];
}

}  // namespace loom::detail
