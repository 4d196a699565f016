// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The last N things that happened in an allocator. Thread: none of its own; the caller locks.

#include "loom/memory/memory_snapshot.h"

#include <cstddef>
#include <vector>

namespace loom::detail {

class TraceHistory {
 public:
  /// Forgets everything and keeps up to `max_entries` from now on; 0 stops.
  void restart(std::size_t max_entries);
  [[nodiscard]] bool recording() const noexcept { return max_entries_ != 0; }
  /// Stamps the time. Requires: recording().
  void add(TraceEntry entry);
  /// Oldest first. Stays readable after restart(0) until the next restart.
  [[nodiscard]] std::vector<TraceEntry> entries() const;

 private:
  std::size_t max_entries_ = 0;
  std::vector<TraceEntry> ring_;
  std::size_t oldest_ = 0;  // index of the entry to be replaced next, once the ring is full
};

}  // namespace loom::detail
