// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/free_list.h"

#include "loom/memory/block.h"

#include <functional>

namespace loom::detail {
namespace {

constexpr std::size_t kLargestBin = BitIndex::kBits * kMinBlockBytes;

std::size_t bin_of(std::size_t size) noexcept { return size / kMinBlockBytes - 1; }

}  // namespace

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

void FreeList::insert(Block& block) {
  ++count_;
  if (block.size > kLargestBin) {
    large_.insert(&block);
    return;
  }
  if (bins_ == nullptr) bins_ = std::make_unique<Bins>();
  const std::size_t bin = bin_of(block.size);
  Block*& head = bins_->heads[bin];
  block.free_previous = nullptr;
  block.free_next = head;
  if (head != nullptr) {
    head->free_previous = &block;
  } else {
    bins_->filled.set(bin);
  }
  head = &block;
}

void FreeList::erase(Block& block) noexcept {
  --count_;
  if (block.size > kLargestBin) {
    large_.erase(&block);
    return;
  }
  if (block.free_next != nullptr) block.free_next->free_previous = block.free_previous;
  if (block.free_previous != nullptr) {
    block.free_previous->free_next = block.free_next;
    return;
  }
  const std::size_t bin = bin_of(block.size);
  bins_->heads[bin] = block.free_next;
  if (block.free_next == nullptr) bins_->filled.clear(bin);
}

Block* FreeList::best_fit(std::size_t size) const noexcept {
  if (size <= kLargestBin && bins_ != nullptr) {
    const std::size_t bin = bins_->filled.first_from(bin_of(size));
    if (bin != BitIndex::kNone) return bins_->heads[bin];
  }
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
