// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Keeps the numbers of MemoryStats cheaply: what can be computed when asked (aggregates, freed
// amounts) is not stored at every change, only the peaks are. A change is a few additions.
// Thread: none of its own; the caller locks.

#include "loom/memory/memory_stats.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace loom::detail {

/// One number over time.
class StatCell {
 public:
  void grow(std::int64_t amount) noexcept {
    current_ += amount;
    grown_ += amount;
    if (current_ > peak_) peak_ = current_;
  }
  void shrink(std::int64_t amount) noexcept { current_ -= amount; }

  [[nodiscard]] std::int64_t current() const noexcept { return current_; }
  [[nodiscard]] MemoryStat value() const noexcept {
    return {current_, peak_, grown_, base_ + grown_ - current_};
  }
  void reset_peak() noexcept { peak_ = current_; }
  void reset_accumulated() noexcept {
    grown_ = 0;
    base_ = current_;
  }

 private:
  std::int64_t current_ = 0, peak_ = 0;
  std::int64_t grown_ = 0;  // by how much it grew since the last reset
  std::int64_t base_ = 0;   // what it was then
};

/// A small-pool and a large-pool number and the peak of their sum.
class StatGroup {
 public:
  void grow(bool large, std::int64_t amount) noexcept {
    cells_[large].grow(amount);
    const std::int64_t sum = current();
    if (sum > peak_) peak_ = sum;
  }
  void shrink(bool large, std::int64_t amount) noexcept { cells_[large].shrink(amount); }
  void change(bool large, std::int64_t amount) noexcept {
    amount >= 0 ? grow(large, amount) : shrink(large, -amount);
  }

  [[nodiscard]] std::int64_t current() const noexcept {
    return cells_[0].current() + cells_[1].current();
  }
  [[nodiscard]] MemoryStatArray value() const noexcept;
  void reset_peak() noexcept;
  void reset_accumulated() noexcept;

 private:
  std::array<StatCell, 2> cells_;  // indexed by `large`
  std::int64_t peak_ = 0;          // of the sum
};

struct StatTracker {
  StatGroup allocation, segment, active, inactive_split;
  StatGroup allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  StatCell oversize_allocations, oversize_segments;
  std::int64_t alloc_retries = 0, ooms = 0, sync_all_streams = 0;
  std::int64_t device_alloc = 0, device_free = 0;
  std::map<PoolId, StatGroup> private_reserved_bytes;

  [[nodiscard]] MemoryStats value() const;
  void reset_peaks() noexcept;
  void reset_accumulated() noexcept;

 private:
  /// Calls function(group) for every StatGroup.
  template <class Function>
  void for_each_group(Function function);
};

}  // namespace loom::detail
