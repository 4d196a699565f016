// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/wait_list.h"

#include <algorithm>

namespace loom::detail {

void WaitList::add(const Timeline& timeline, std::uint64_t position) {
  if (timeline.reached(position)) return;
  for (auto& [known, highest] : waits_) {
    if (known != &timeline) continue;
    highest = std::max(highest, position);
    return;
  }
  waits_.emplace_back(&timeline, position);
}

void WaitList::wait(Timeline::Signals signals) const {
  for (const auto& [timeline, position] : waits_) timeline->wait(position, signals);
}

}  // namespace loom::detail
