// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which segment an address lies in: a hash table of the 2 MiB granules that segments cover, with
// linear probing, at most half full. A lookup is a multiplication and, nearly always, one compare.
// Thread: none of its own; the caller locks.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::detail {

struct Segment;

class SegmentTable {
 public:
  /// Segments start at multiples of it.
  static constexpr std::size_t kGranuleBytes = std::size_t{2} << 20;

  SegmentTable();

  /// Makes room for one more segment of `bytes`.
  void reserve(std::size_t bytes);
  /// Requires: covers whole granules, none of which is in the table. Throws nothing after a
  /// reserve() for its size.
  void insert(Segment& segment);
  void erase(const Segment& segment) noexcept;
  /// The segment that holds `address`, or null.
  [[nodiscard]] Segment* find(const void* address) const noexcept {
    const std::uintptr_t granule = reinterpret_cast<std::uintptr_t>(address) / kGranuleBytes;
    const std::size_t mask = entries_.size() - 1;
    for (std::size_t i = home(granule); entries_[i].segment != nullptr; i = (i + 1) & mask) {
      if (entries_[i].granule == granule) return entries_[i].segment;
    }
    return nullptr;
  }

 private:
  /// Unused when `segment` is null.
  struct Entry {
    std::uintptr_t granule = 0;
    Segment* segment = nullptr;
  };

  [[nodiscard]] std::size_t home(std::uintptr_t granule) const noexcept {
    // Fibonacci hashing: the high bits of the product are well mixed.
    return static_cast<std::size_t>(std::uint64_t{granule} * 0x9E3779B97F4A7C15u >> shift_);
  }
  void insert_granule(Entry entry) noexcept;
  void erase_granule(std::uintptr_t granule) noexcept;
  void grow(std::size_t capacity);

  std::vector<Entry> entries_;  // 2^n of them
  int shift_ = 0;               // 64 - n
  std::size_t used_ = 0;
};

}  // namespace loom::detail
