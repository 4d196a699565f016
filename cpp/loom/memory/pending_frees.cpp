// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/pending_frees.h"

#include <algorithm>

namespace loom::detail {

void PendingFrees::add(Block& block, const Timeline& timeline, std::uint64_t position) {
  auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                           [&](const Lane& known) { return known.timeline == &timeline; });
  if (lane == lanes_.end()) lane = lanes_.insert(lanes_.end(), Lane{&timeline, {}});
  lane->entries.push_back({position, &block});
  ++block.pending_queues;
  ++entries_;
}

void PendingFrees::add_waits(WaitList& waits) const {
  for (const Lane& lane : lanes_) {
    if (!lane.entries.empty()) waits.add(*lane.timeline, lane.entries.back().position);
  }
}

}  // namespace loom::detail
