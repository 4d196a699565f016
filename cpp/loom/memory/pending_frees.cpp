// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/pending_frees.h"

#include <algorithm>

namespace loom::detail {

PendingFrees::Lane& PendingFrees::lane_of(const Timeline& timeline) {
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                                 [&](const Lane& known) { return known.timeline == &timeline; });
  return lane != lanes_.end() ? *lane : lanes_.emplace_back(Lane{&timeline, {}, {}});
}

void PendingFrees::prepare(const Timeline& timeline) {
  Lane& lane = lane_of(timeline);
  if (lane.spare.empty()) lane.spare.emplace_back();
}

void PendingFrees::add(Block& block, const Timeline& timeline, std::uint64_t position) noexcept {
  Lane& lane = lane_of(timeline);
  lane.spare.front() = {position, &block};
  lane.entries.splice(lane.entries.end(), lane.spare, lane.spare.begin());
  ++block.pending_queues;
  ++entries_;
}

void PendingFrees::add_waits(WaitList& waits) const {
  for (const Lane& lane : lanes_) {
    if (!lane.entries.empty()) waits.add(*lane.timeline, lane.entries.back().position);
  }
}

}  // namespace loom::detail
