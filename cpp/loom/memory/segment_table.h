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

  /// Requires: aligned to kGranuleBytes, overlaps no segment in the table.
  void insert(Segment& segment);
  void erase(const Segment& segment) noexcept;
  /// The segment that holds `address`, or null.
  [[nodiscard]] Segment* find(const void* address) const noexcept;

 private:
  /// Unused when `segment` is null.
  struct Entry {
    std::uintptr_t granule = 0;
    Segment* segment = nullptr;
  };

  [[nodiscard]] std::size_t home(std::uintptr_t granule) const noexcept;
  void insert_granule(Entry entry) noexcept;
  void erase_granule(std::uintptr_t granule) noexcept;
  void grow(std::size_t capacity);

  std::vector<Entry> entries_;  // a power of two
  std::size_t used_ = 0;
};

}  // namespace loom::detail
