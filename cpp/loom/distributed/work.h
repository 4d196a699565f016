// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What an operation with other ranks returns. wait() has the current stream wait, as NCCL's does:
// the host goes on, and an error reaches whoever looks at values that lack because of it, as all of
// loom's do. Where there is nothing on the device to wait for (tensors of the cpu, a barrier), with
// a timeout of its own, and with LOOM_LAUNCH_BLOCKING=1, the host waits. Thread: any.

#include "loom/backend/torch_features.h"
#include "loom/base/export.h"
#include "loom/device/queue.h"
#include "loom/distributed/completion.h"
#include "loom/distributed/engine.h"
#include "loom/distributed/host_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace loom::distributed {

class LOOM_API WorkLccl final : public c10d::Work {
 public:
  /// One command of a communication queue.
  struct Part {
    std::shared_ptr<Completion> completion;
    Queue* queue;  ///< lives as long as the process
    std::uint64_t position;
  };
  /// Where its results are.
  enum class Results { kDevice, kHost };

  WorkLccl(std::shared_ptr<Engine> engine, c10d::OpType type, std::uint64_t number,
           std::vector<Part> parts, std::vector<at::Tensor> outputs, Results results,
           std::shared_ptr<HostTensors> host_tensors, std::chrono::milliseconds timeout);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  /// Waits for the message.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override;
#if LOOM_TORCH_HAS_WORK_TIMEOUT
  std::chrono::milliseconds getTimeout() const override { return timeout_; }
#endif

  [[nodiscard]] const std::vector<Part>& parts() const noexcept { return parts_; }
  [[nodiscard]] const std::vector<at::Tensor>& outputs() const noexcept { return outputs_; }
  [[nodiscard]] Results results() const noexcept { return results_; }
  /// How long the operation may take.
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

 private:
  /// Throws the error of a part that has failed.
  void check() const;
  /// The caller is told that it has failed, so nobody else need be.
  void note_told() const;
  void wait_for_parts() const;
  /// Whose current stream waits. Requires: there are parts.
  [[nodiscard]] c10::DeviceIndex device() const;
  /// Throws: as wait().
  void wait_on_host(std::chrono::milliseconds timeout);
  /// As wait_on_host(), with a limit.
  void wait_limited(std::chrono::milliseconds timeout);

  const std::shared_ptr<Engine> engine_;
  const std::uint64_t number_;
  const std::vector<Part> parts_;
  const std::vector<at::Tensor> outputs_;
  const Results results_;
  const std::shared_ptr<HostTensors> host_tensors_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace loom::distributed
