// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Positions in timelines that must be reached before some memory may be touched or unmapped:
// gathered under the allocator's lock, waited for without it. Thread: one at a time.

#include "loom/device/timeline.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace loom::detail {

class WaitList {
 public:
  /// Positions that are reached already are not kept; of each timeline only the highest is.
  void add(const Timeline& timeline, std::uint64_t position);
  [[nodiscard]] bool empty() const noexcept { return waits_.empty(); }
  /// Returns when all are reached. Requires: the caller is no worker and holds no lock.
  /// Throws: as Timeline::wait().
  void wait(Timeline::Signals signals = Timeline::Signals::kLater) const;

 private:
  std::vector<std::pair<const Timeline*, std::uint64_t>> waits_;
};

}  // namespace loom::detail
