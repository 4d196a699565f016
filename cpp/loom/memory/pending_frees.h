// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Blocks that clients have freed while queues other than their own may still use them. A block
// waits for one position in the timeline of each such queue. Positions of a queue only grow, so
// every queue has a lane whose front is the next to be reached.
// Thread: none of its own; the caller locks.

#include "loom/device/timeline.h"
#include "loom/memory/block.h"
#include "loom/memory/wait_list.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace loom::detail {

class PendingFrees {
 public:
  /// `block` waits until `timeline` reaches `position`; counted in block.pending_queues.
  /// Requires: position not below an earlier one of this timeline; prepare() of it before.
  void add(Block& block, const Timeline& timeline, std::uint64_t position) noexcept;

  /// Has memory ready for one add() with this timeline. Throws: std::bad_alloc.
  void prepare(const Timeline& timeline);

  /// Calls complete(block) for every block that waits for nothing any more, oldest first.
  template <class Complete>
  void take_reached(Complete complete) {
    for (Lane& lane : lanes_) {
      while (!lane.entries.empty() && lane.timeline->reached(lane.entries.front().position)) {
        Block& block = *lane.entries.front().block;
        lane.drop_front();
        --entries_;
        if (--block.pending_queues == 0) complete(block);
      }
    }
  }

  [[nodiscard]] bool empty() const noexcept { return entries_ == 0; }
  /// Pairs of a block and a queue. O(1).
  [[nodiscard]] std::size_t entries() const noexcept { return entries_; }
  void add_waits(WaitList& waits) const;

 private:
  struct Entry {
    std::uint64_t position;
    Block* block;
  };
  using Entries = std::list<Entry>;
  struct Lane {
    const Timeline* timeline;
    Entries entries;
    Entries spare;  ///< memory for entries to come

    void drop_front() noexcept {
      constexpr std::size_t kMostSpare = 64;
      spare.splice(spare.begin(), entries, entries.begin());
      if (spare.size() > kMostSpare) spare.pop_back();
    }
  };

  [[nodiscard]] Lane& lane_of(const Timeline& timeline);

  // A handful of queues share memory, so a search is quicker than a table.
  std::vector<Lane> lanes_;
  std::size_t entries_ = 0;
};

}  // namespace loom::detail
