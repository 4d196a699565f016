// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/stat_tracker.h"

#include <iterator>

namespace loom::detail {

MemoryStatArray StatGroup::value() const noexcept {
  const MemoryStat small = cells_[0].value(), large = cells_[1].value();
  const MemoryStat aggregate{current(), peak_, small.allocated + large.allocated,
                             small.freed + large.freed};
  return {aggregate, small, large};
}

void StatGroup::reset_peak() noexcept {
  for (StatCell& cell : cells_) cell.reset_peak();
  peak_ = current();
}

void StatGroup::reset_accumulated() noexcept {
  for (StatCell& cell : cells_) cell.reset_accumulated();
}

template <class Function>
void StatTracker::for_each_group(Function function) {
  for (StatGroup* group :
       {&allocation, &segment, &active, &inactive_split, &allocated_bytes, &reserved_bytes,
        &active_bytes, &inactive_split_bytes, &requested_bytes}) {
    function(*group);
  }
  for (auto& [pool, group] : private_reserved_bytes) function(group);
}

MemoryStats StatTracker::value() const {
  MemoryStats stats;
  stats.allocation = allocation.value();
  stats.segment = segment.value();
  stats.active = active.value();
  stats.inactive_split = inactive_split.value();
  stats.allocated_bytes = allocated_bytes.value();
  stats.reserved_bytes = reserved_bytes.value();
  stats.active_bytes = active_bytes.value();
  stats.inactive_split_bytes = inactive_split_bytes.value();
  stats.requested_bytes = requested_bytes.value();
  stats.oversize_allocations = oversize_allocations.value();
  stats.oversize_segments = oversize_segments.value();
  stats.num_alloc_retries = alloc_retries;
  stats.num_ooms = ooms;
  stats.num_sync_all_streams = sync_all_streams;
  stats.num_device_alloc = device_alloc;
  stats.num_device_free = device_free;
  for (const auto& [pool, group] : private_reserved_bytes) {
    stats.reserved_bytes_by_private_pools.emplace_back(pool, group.value());
  }
  return stats;
}

void StatTracker::reset_peaks() noexcept {
  for_each_group([](StatGroup& group) { group.reset_peak(); });
  oversize_allocations.reset_peak();
  oversize_segments.reset_peak();
}

void StatTracker::reset_accumulated() noexcept {
  for_each_group([](StatGroup& group) { group.reset_accumulated(); });
  oversize_allocations.reset_accumulated();
  oversize_segments.reset_accumulated();
  alloc_retries = ooms = sync_all_streams = device_alloc = device_free = 0;
  std::erase_if(private_reserved_bytes,
                [](const auto& entry) { return entry.second.current() == 0; });
}

}  // namespace loom::detail
