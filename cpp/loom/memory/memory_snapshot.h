// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The allocator's memory as plain values: segments with their blocks, and the history of what
// happened to them, with what PyTorch's memory visualiser asks for. `context` is whatever the
// recorder given to CachingAllocator::record_history() returned, usually a stack. Thread: any.

#include "loom/memory/memory_stats.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace loom {

class Queue;

struct BlockSnapshot {
  void* address = nullptr;
  std::size_t size = 0;
  std::size_t requested_size = 0;  ///< what the client asked for; 0 when free
  bool allocated = false;          ///< in use by a client
  bool active = false;             ///< allocated, or freed and still used by another queue
  std::string name;                ///< the name a user gave the allocation, or empty
  std::shared_ptr<void> context;   ///< of the allocation, or null
  const Queue* queue = nullptr;    ///< whose order its reuse follows
};

struct SegmentSnapshot {
  void* address = nullptr;
  std::size_t total_size = 0;
  /// Of the active blocks: what was asked for, and their sizes.
  std::size_t requested_size = 0, allocated_size = 0, active_size = 0;
  const Queue* queue = nullptr;
  bool is_large = false;
  PoolId pool{0, 0};
  std::vector<BlockSnapshot> blocks;  ///< by address, without gaps
  std::shared_ptr<void> context;      ///< of the allocation that mapped the segment, or null
};

/// One entry of the allocation history.
struct TraceEntry {
  enum class Action {
    kAlloc,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAlloc,
    kSegmentFree,
    kSnapshot,
    kOutOfMemory
  };
  Action action = Action::kAlloc;
  void* address = nullptr;  ///< null for kOutOfMemory and kSnapshot
  std::size_t size = 0;     ///< bytes; for kAlloc what the client asked for
  const Queue* queue = nullptr;
  std::int64_t time_ns = 0;  ///< steady clock
  std::shared_ptr<void> context;
  PoolId pool{0, 0};
  std::size_t free_bytes = 0;  ///< for kOutOfMemory: what could still be mapped
};

}  // namespace loom
