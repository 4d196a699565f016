// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What runs on the worker of a communication queue: one operation with other ranks, which holds it
// up until they have done their part. It carries addresses; the memory is kept by stream order, or
// on the host by the process group. Thread: made by the caller's, runs on the worker.

#include "loom/collectives/operation.h"
#include "loom/device/command_buffer.h"
#include "loom/device/failure.h"
#include "loom/distributed/completion.h"
#include "loom/distributed/engine.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace loom::distributed {

class Command {
 public:
  using Body = std::function<void(Engine&, const collectives::Operation&, Completion&)>;

  /// `operation`: its deadline is set when it begins.
  Command(std::shared_ptr<Engine> engine, std::shared_ptr<Completion> completion,
          const collectives::Operation& operation, std::int64_t timeout_ns, AccessList accesses,
          Body body);

  /// Throws: c10::DistBackendError, after which the group has ended.
  void operator()();
  void accesses(AccessList& list) const;
  /// It cannot run, as what it reads has failed: then it fails on all ranks.
  void failed(const FailurePtr& failure) noexcept;

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Completion> completion_;
  collectives::Operation operation_;
  std::int64_t timeout_ns_;
  AccessList accesses_;
  Body body_;
};

}  // namespace loom::distributed
