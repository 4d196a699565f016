// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What this process has called last in its groups, for people who ask why one hangs or has failed.
// It is dumped in the form of PyTorch's flight recorder, which `torchfrtrace` compares between
// ranks: on request, and when a group has failed, whoever made it fail, if
// TORCH_NCCL_DUMP_ON_TIMEOUT is 1, or a file is named by TORCH_FR_DUMP_TEMP_FILE. A thread looks
// for failed groups then: the rank that the others have waited for may do something else for ever.
// Thread: any.

#include "loom/base/export.h"
#include "loom/base/mutex.h"
#include "loom/device/thread.h"
#include "loom/distributed/completion.h"
#include "loom/distributed/engine.h"

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace loom::distributed {

/// An operation that was called.
struct Recorded {
  /// Of its tensors, which it does not keep.
  struct Shape {
    at::DimVector sizes;
    c10::ScalarType dtype;
  };
  using Shapes = c10::SmallVector<Shape, 1>;  // one costs no allocation
  [[nodiscard]] static Shapes shapes_of(const std::vector<at::Tensor>& tensors);

  const char* name;
  std::uint64_t number;  ///< as in errors
  std::size_t bytes;
  std::shared_ptr<Completion> completion;
  int peer = -1;  ///< of a message, unless it is from anybody
  bool is_message = false;
  std::uint64_t collectives = 0, messages = 0;  ///< of the group, up to this one
  Shapes inputs = {}, outputs = {};
  std::int64_t timeout_ns = 0;

  // Set by the recorder.
  const c10d::Backend* group = nullptr;
  std::uint64_t id = 0;
  std::int64_t called_ns = 0;  ///< of the steady clock
};

class LOOM_API FlightRecorder {
 public:
  /// Of this process; leaked.
  [[nodiscard]] static FlightRecorder& instance();

  /// `ranks`: those of the group, in the numbers of the default group. Both live until leave().
  void join(const c10d::Backend& group, const Engine& engine, std::vector<std::uint64_t> ranks);
  /// Dumps if the group has failed and that was not noticed yet, then forgets it.
  void leave(const c10d::Backend& group);

  void record(const c10d::Backend& group, Recorded operation);
  /// Those of a group, oldest first, as far as they are kept.
  [[nodiscard]] std::vector<Recorded> operations_of(const c10d::Backend& group) const;
  /// Whether one of them has failed on this rank.
  [[nodiscard]] bool has_failed(const c10d::Backend& group) const;

  /// All of them: a pickle.
  [[nodiscard]] std::string dump() const;

 private:
  struct Group {
    const c10d::Backend* backend;
    const Engine* engine;
    std::vector<std::uint64_t> ranks;
    bool told = false;  ///< that it has failed
  };

  FlightRecorder();
  /// Writes a dump if a group has failed since the last look, and asked for.
  void look() noexcept;
  void dump_failed();
  [[nodiscard]] std::string dump_locked() const LOOM_REQUIRES(mutex_);

  const bool dumps_failures_;
  Mutex write_mutex_;  // before the other
  mutable Mutex mutex_;
  std::vector<Group> groups_ LOOM_GUARDED_BY(mutex_);
  std::deque<Recorded> operations_ LOOM_GUARDED_BY(mutex_);
  std::uint64_t next_ LOOM_GUARDED_BY(mutex_) = 0;
  std::optional<LoomThread> thread_ LOOM_GUARDED_BY(mutex_);
  // Sequentially consistent: written once, the thread is woken after it.
  std::atomic<std::uint32_t> stopped_{0};
};

}  // namespace loom::distributed
