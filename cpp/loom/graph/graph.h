// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// torch.accelerator.Graph on loom: captures what a stream is asked to do, in private memory, and
// runs it again as one command, with no Python and no dispatcher. docs/design/graphs.md.
// The capture modes differ in what other threads may do meanwhile; on loom nothing that they do can
// break a capture, so all modes are alike.
// Thread: one graph is captured, reset and destroyed by one thread at a time; any may replay it.

#include "loom/base/export.h"
#include "loom/base/mutex.h"

#include <ATen/core/GraphImplInterface.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace loom {
class Queue;
}

namespace loom::graph {

class CapturedGraph;

class LOOM_API Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args = {});
  /// Ends a capture under way. Queued replays still run.
  ~Graph() override;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Captures the current stream of the current device, and the streams that wait for its events.
  /// Memory comes from `pool`, {0, 0} = one of its own.
  /// Throws: c10::Error when this graph is captured already; loom::Error when the stream or the
  /// pool is being captured.
  void capture_begin(at::MempoolId_t pool = {0, 0},
                     at::GraphCaptureMode capture_mode = at::GraphCaptureMode::Default) override;

  /// Throws: c10::Error when something refused made the capture invalid (the graph is then as new,
  /// and the stream usable), when no capture is under way, or when the current stream is not the
  /// one that it began on (the capture goes on).
  void capture_end() override;

  /// With keep_graph, before the first replay() or by it. Nothing is left to do: what was captured
  /// can run. Throws: c10::Error without a capture, or a second time without keep_graph.
  void instantiate() override;

  /// Queues a run of the graph on the current stream of its device. Runs of one graph never
  /// overlap. Throws: c10::Error without a capture.
  void replay() override;

  /// Forgets the capture. Its pool is released when the last queued replay has run.
  void reset() override;

  /// Throws: c10::Error before capture_begin().
  [[nodiscard]] at::MempoolId_t pool() const override;

  /// Nothing: every graph can be dumped.
  void enable_debug_mode() override {}

  /// Writes the commands as a graph in the DOT language.
  /// Throws: c10::Error without a capture, or when the file cannot be written.
  void debug_dump(const std::string& path) override;

 private:
  enum class Stage { kEmpty, kCapturing, kCaptured, kReady };
  struct LastReplay {
    Queue* queue = nullptr;
    std::uint64_t position = 0;
  };

  void check_captured(const char* api) const;
  void order_after_last_replay(Queue& queue);

  const bool keep_graph_;
  // Replays of several threads may be the first: who sees a stage sees the capture. What changes it
  // otherwise is one thread's at a time.
  std::atomic<Stage> stage_{Stage::kEmpty};
  Queue* queue_ = nullptr;  ///< that the capture began on
  std::shared_ptr<CapturedGraph> captured_;

  mutable Mutex mutex_;
  LastReplay last_replay_ LOOM_GUARDED_BY(mutex_);
};

/// Writes the commands of `graph` in their order, with the memory that each reads and writes.
/// Throws: c10::Error when the file cannot be written.
void dump(CapturedGraph& graph, const std::string& path);

/// Makes graphs known for the time that loom is called "cuda" (backend/cuda_name.h). Idempotent.
LOOM_API void register_under_cuda_name();

}  // namespace loom::graph
