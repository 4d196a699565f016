// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a capture leaves: the commands, their random numbers, and a hold on the private pool that
// their memory is in. Queued replays share it, so that it goes, and the pool with it, after the
// last of them has run. Private to graph/. Thread: as PhiloxGraph; replays of several workers
// exclude each other.

#include "loom/backend/philox_graph.h"
#include "loom/base/mutex.h"
#include "loom/device/command_trace.h"
#include "loom/memory/memory_stats.h"

#include <memory>
#include <vector>

namespace loom {
class CachingAllocator;
class Queue;
}  // namespace loom

namespace loom::graph {

class CapturedGraph final : public PhiloxGraph {
 public:
  CapturedGraph(CachingAllocator& memory, PoolId pool);
  /// Releases the pool.
  ~CapturedGraph() override;

  /// Begins the capture of `queue`, whose memory comes from the pool from now on.
  /// Throws: loom::Error when the queue is captured already, or the pool by another capture.
  void begin(Queue& queue);
  void end() noexcept;

  [[nodiscard]] PoolId pool() const noexcept { return pool_; }

 private:
  friend class Replay;

  CachingAllocator& memory_;
  const PoolId pool_;
  bool holds_pool_ = false;
  Mutex run_mutex_;  ///< a graph runs once at a time; held by the worker that runs it
};

/// The command that runs a graph.
class Replay {
 public:
  /// Takes the random numbers that it needs. Requires: submitted to `queue` next.
  Replay(std::shared_ptr<CapturedGraph> graph, const Queue& queue);
  void operator()() const;
  /// The graph's commands look for failed memory one by one.
  void run_checked() const { (*this)(); }
  void accesses(AccessList& list) const;

 private:
  std::shared_ptr<CapturedGraph> graph_;
  std::vector<PhiloxRange> random_;
  LaunchContext context_;
};

}  // namespace loom::graph
