// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/segment_table.h"

#include "loom/memory/block.h"

#include <bit>
#include <utility>

namespace loom::detail {
namespace {

std::uintptr_t granule_of(const std::byte* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) / SegmentTable::kGranuleBytes;
}

std::uintptr_t end_granule(const Segment& segment) noexcept {
  return granule_of(segment.address + segment.bytes);
}

}  // namespace

SegmentTable::SegmentTable() { grow(64); }

void SegmentTable::reserve(std::size_t bytes) {
  const std::size_t needed = 2 * (used_ + bytes / kGranuleBytes);
  if (needed > entries_.size()) grow(std::bit_ceil(needed));
}

void SegmentTable::insert(Segment& segment) {
  reserve(segment.bytes);
  const std::uintptr_t begin = granule_of(segment.address), end = end_granule(segment);
  for (std::uintptr_t granule = begin; granule != end; ++granule) {
    insert_granule({granule, &segment});
  }
}

void SegmentTable::erase(const Segment& segment) noexcept {
  const std::uintptr_t end = end_granule(segment);
  for (std::uintptr_t granule = granule_of(segment.address); granule != end; ++granule) {
    erase_granule(granule);
  }
}

void SegmentTable::insert_granule(Entry entry) noexcept {
  const std::size_t mask = entries_.size() - 1;
  std::size_t i = home(entry.granule);
  while (entries_[i].segment != nullptr) i = (i + 1) & mask;
  entries_[i] = entry;
  ++used_;
}

void SegmentTable::erase_granule(std::uintptr_t granule) noexcept {
  const std::size_t mask = entries_.size() - 1;
  std::size_t hole = home(granule);
  while (entries_[hole].granule != granule || entries_[hole].segment == nullptr) {
    hole = (hole + 1) & mask;
  }
  // Entries behind the hole move into it unless that would put them before their home.
  for (std::size_t i = (hole + 1) & mask; entries_[i].segment != nullptr; i = (i + 1) & mask) {
    const std::size_t distance_to_home = (i - home(entries_[i].granule)) & mask;
    if (distance_to_home < ((i - hole) & mask)) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole] = {};
  --used_;
}

void SegmentTable::grow(std::size_t capacity) {
  std::vector<Entry> old(capacity);
  std::swap(old, entries_);
  shift_ = 64 - std::countr_zero(capacity);
  used_ = 0;
  for (const Entry& entry : old) {
    if (entry.segment != nullptr) insert_granule(entry);
  }
}

}  // namespace loom::detail
