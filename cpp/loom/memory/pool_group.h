// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The pools of all queues that share a purpose: the default group, or one private pool of a graph
// capture. Every queue has a small and a large pool in it; memory never moves between queues.
// Thread: none of its own; the caller locks.

#include "loom/memory/block_pool.h"
#include "loom/memory/memory_stats.h"

#include <cstddef>
#include <unordered_map>

namespace loom::detail {

struct PoolGroup {
  PoolGroup(PoolId pool_id, BlockStore& block_store) : id(pool_id), store(block_store) {}

  struct QueuePools {
    explicit QueuePools(BlockStore& store) : small(store, false), large(store, true) {}
    BlockPool small, large;
  };

  /// The pool of `queue` that holds blocks of that kind; made at the first call.
  [[nodiscard]] BlockPool& pool(const Queue& queue, bool large) {
    if (last_queue != &queue) {
      last_pools = &queues.try_emplace(&queue, store).first->second;
      last_queue = &queue;
    }
    return large ? last_pools->large : last_pools->small;
  }

  [[nodiscard]] bool is_private() const noexcept { return id != PoolId{0, 0}; }
  /// Whether unused segments may go: a graph that can still be replayed refers to all of its own.
  [[nodiscard]] bool may_shrink() const noexcept { return !is_private() || references == 0; }

  const PoolId id;
  BlockStore& store;
  int references = 0;        ///< of a private pool: begins without their release
  std::size_t segments = 0;  ///< mapped now
  std::unordered_map<const Queue*, QueuePools> queues;  // nodes keep their addresses
  const Queue* last_queue = nullptr;  // most calls ask for the queue of the call before
  QueuePools* last_pools = nullptr;
};

}  // namespace loom::detail
