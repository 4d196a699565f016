// SPDX-License-Identifier: BSD-3-Clause
#include "loom/graph/captured_graph.h"

#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/memory/caching_allocator.h"

#include <cstdio>
#include <exception>
#include <utility>

namespace loom::graph {
namespace {

/// For destructors and the end of a capture: what the allocator says there is a bug of loom.
template <class Action>
void report_errors(Action&& action) noexcept {
  try {
    action();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loom: %s\n", error.what());
  }
}

}  // namespace

CapturedGraph::CapturedGraph(CachingAllocator& memory, PoolId pool)
    : memory_(memory), pool_(pool) {}

CapturedGraph::~CapturedGraph() {
  // In a forked child the allocator's lock may be held for ever.
  if (!holds_pool_ || in_bad_fork()) return;
  report_errors([this] { memory_.release_pool(pool_); });
}

void CapturedGraph::begin(Queue& queue) {
  memory_.begin_allocate_to_pool(
      pool_, [id = id()](const Queue& user) { return user.capture_id() == id; });
  holds_pool_ = true;
  try {
    begin_capture(queue);
  } catch (...) {
    memory_.end_allocate_to_pool(pool_);
    throw;
  }
}

void CapturedGraph::end() noexcept {
  if (in_bad_fork()) return;
  end_capture();
  report_errors([this] { memory_.end_allocate_to_pool(pool_); });
}

Replay::Replay(std::shared_ptr<CapturedGraph> graph, const Queue& queue)
    : graph_(std::move(graph)),
      random_(graph_->reserve_replay(queue)),
      context_(CommandTrace::context()) {}

void Replay::operator()() const {
  MutexLock lock(graph_->run_mutex_);
  graph_->set_origins(random_);
  const LaunchContext outer = CommandTrace::context();
  CommandTrace::set_context(context_);
  graph_->run();
  CommandTrace::set_context(outer);
}

void Replay::accesses(AccessList& list) const {
  graph_->for_each([&](const Command& command) { command.accesses(list); });
}

}  // namespace loom::graph
