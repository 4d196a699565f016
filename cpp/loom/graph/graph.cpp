// SPDX-License-Identifier: BSD-3-Clause
#include "loom/graph/graph.h"

#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"
#include "loom/backend/host_release.h"
#include "loom/backend/registration.h"
#include "loom/backend/stream.h"
#include "loom/device/queue.h"
#include "loom/graph/captured_graph.h"

#include <c10/util/Exception.h>

#include <utility>

namespace loom::graph {

Graph::Graph(const at::GraphImplArgs& args) : keep_graph_(args.keep_graph) {}

Graph::~Graph() {
  if (!in_bad_fork()) reset();  // a child has none of its queues, and reset() locks
}

void Graph::capture_begin(at::MempoolId_t pool, at::GraphCaptureMode /*capture_mode*/) {
  TORCH_CHECK(stage_ == Stage::kEmpty,
              "Graph.capture_begin: expected a graph without a capture, got one that has been "
              "captured; reset() it first, or make another one");
  Queue& queue = current_queue();
  const auto device = static_cast<c10::DeviceIndex>(queue.id().device);
  if (pool == at::MempoolId_t{0, 0}) pool = CachingAllocator::new_pool_id();
  release_kept_storages();
  auto captured = std::make_shared<CapturedGraph>(caching_allocator(device), pool);
  captured->begin(queue);
  captured_ = std::move(captured);
  queue_ = &queue;
  stage_ = Stage::kCapturing;
}

void Graph::capture_end() {
  TORCH_CHECK(stage_ == Stage::kCapturing,
              "Graph.capture_end: expected a capture under way, got none; capture_begin() comes "
              "first");
  const auto device = static_cast<c10::DeviceIndex>(queue_->id().device);
  TORCH_CHECK(&current_queue(device) == queue_,
              "Graph.capture_end: expected the stream that the capture began on to be current, got "
              "another one");
  captured_->end();
  if (const std::string reason = captured_->invalid_reason(); !reason.empty()) {
    captured_.reset();
    stage_ = Stage::kEmpty;
    TORCH_CHECK(false,
                "Graph.capture_end: the capture is invalid, because of an earlier error: ", reason);
  }
  stage_ = Stage::kCaptured;
  if (!keep_graph_) instantiate();
}

void Graph::check_captured(const char* api) const {
  const Stage stage = stage_;
  TORCH_CHECK(stage == Stage::kCaptured || stage == Stage::kReady, "Graph.", api,
              ": expected a graph that has been captured, got ",
              stage == Stage::kEmpty ? "an empty one" : "one whose capture has not ended");
}

void Graph::instantiate() {
  check_captured("instantiate");
  TORCH_CHECK(stage_ == Stage::kCaptured || keep_graph_,
              "Graph.instantiate: expected a graph with keep_graph=True, got one that was "
              "instantiated when its capture ended");
  stage_ = Stage::kReady;
}

void Graph::replay() {
  check_captured("replay");
  // Of several first replays one instantiates; the others find it done.
  Stage captured = Stage::kCaptured;
  (void)stage_.compare_exchange_strong(captured, Stage::kReady);
  Queue& queue = current_queue(static_cast<c10::DeviceIndex>(queue_->id().device));
  // In a capture the replay becomes a part of that graph.
  const bool nested = queue.captured();
  if (!nested) order_after_last_replay(queue);
  const std::uint64_t position = queue.submit(kReplayName, Replay(captured_, queue));
  if (nested) return;
  MutexLock lock(mutex_);
  last_replay_ = {&queue, position};
}

// Runs of one graph use the same memory. The lock is not held while submitting, which may wait.
void Graph::order_after_last_replay(Queue& queue) {
  LastReplay last;
  {
    MutexLock lock(mutex_);
    last = last_replay_;
  }
  if (last.queue != nullptr) queue.wait_for(last.queue->timeline(), last.position);
}

void Graph::reset() {
  if (stage_ == Stage::kCapturing) captured_->end();
  captured_.reset();
  stage_ = Stage::kEmpty;
  release_kept_storages();  // of graphs whose last replay has ended since
  MutexLock lock(mutex_);
  last_replay_ = {};
}

at::MempoolId_t Graph::pool() const {
  TORCH_CHECK(stage_ != Stage::kEmpty,
              "Graph.pool: expected a graph that is or has been captured, got an empty one");
  return captured_->pool();
}

void Graph::debug_dump(const std::string& path) {
  check_captured("debug_dump");
  dump(*captured_, path);
}

void register_under_cuda_name() {
  // PyTorch looks graphs up by the printed name of the device. In a PyTorch for CUDA it is taken.
  static const bool registered = [] {
    if (at::GraphImplRegistry()->Has("CUDA")) return false;
    at::GraphImplRegistry()->Register("CUDA", [](const at::GraphImplArgs& args) {
      return std::unique_ptr<at::GraphImplInterface>(new Graph(args));
    });
    return true;
  }();
  (void)registered;
}

}  // namespace loom::graph

namespace at {
[[maybe_unused]] static const bool loom_graph =
    loom::register_at_load([] { REGISTER_GRAPH_IMPL(LOOM, loom::graph::Graph) });
}  // namespace at
