// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/trace_history.h"

#include <chrono>
#include <utility>

namespace loom::detail {

void TraceHistory::restart(std::size_t max_entries) {
  max_entries_ = max_entries;
  if (max_entries == 0) return;
  ring_.clear();
  oldest_ = 0;
}

void TraceHistory::add(TraceEntry entry) {
  using std::chrono::duration_cast, std::chrono::nanoseconds, std::chrono::steady_clock;
  entry.time_ns = duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
  if (ring_.size() < max_entries_) {
    ring_.push_back(std::move(entry));
    return;
  }
  ring_[oldest_] = std::move(entry);
  oldest_ = (oldest_ + 1) % max_entries_;
}

std::vector<TraceEntry> TraceHistory::entries() const {
  std::vector<TraceEntry> ordered;
  ordered.reserve(ring_.size());
  for (std::size_t i = 0; i < ring_.size(); ++i) {
    ordered.push_back(ring_[(oldest_ + i) % ring_.size()]);
  }
  return ordered;
}

}  // namespace loom::detail
