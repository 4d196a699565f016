// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// lccl, loom's backend of torch.distributed. An operation returns at once: it is a command of a
// queue of the group's own, which first waits for what the current stream holds, and the Work that
// it returns orders later work behind it. Messages to a rank have a queue of their own, and those
// that are received have one for each peer and tag, so that none waits for another. Tensors of the
// cpu take the same way.
// Any error ends the group on all ranks: the operation that failed, those that are queued, and
// those begun later throw c10::DistBackendError, which says which rank failed in what. Thread: any;
// operations are in the order in which they are called.

#include "loom/backend/torch_features.h"
#include "loom/base/export.h"
#include "loom/base/mutex.h"
#include "loom/distributed/command.h"
#include "loom/distributed/engine.h"
#include "loom/distributed/flight_recorder.h"
#include "loom/distributed/host_tensors.h"
#include "loom/distributed/operands.h"
#include "loom/distributed/work.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace loom::distributed {

class LOOM_API ProcessGroupLccl final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  template <class T>
  using Ptr = c10::intrusive_ptr<T>;

  struct LOOM_API Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options("lccl", timeout) {}
#if LOOM_TORCH_HAS_BACKEND_OPTIONS_CLONE
    Ptr<c10d::Backend::Options> clone() const override {
      return c10::make_intrusive<Options>(*this);
    }
#endif
  };

  /// Meets the other ranks at `store`; returns when all have come.
  /// Throws: c10::DistBackendError when one does not come before the options' timeout.
  ProcessGroupLccl(const Ptr<c10d::Store>& store, int rank, int size, Ptr<Options> options);
  ~ProcessGroupLccl() override;

  const std::string getBackendName() const override { return "lccl"; }
  Ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  /// Of the next operation of the group.
  std::uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  Ptr<c10d::Backend> split(const Ptr<c10d::Store>& store, const std::vector<int>& ranks,
                           const Ptr<c10d::Backend::Options>& options) override;
  void eagerConnectSingleDevice(at::Device device) override;

  /// Ends the group on all ranks, and what is queued with it.
  void abort() override;
  /// Waits for what is queued, then leaves. Errors that nobody has been told are printed when the
  /// process ends, or raised by who synchronises with the device. Throws: c10::DistBackendError,
  /// once it has left, if another rank has sent what no operation of this one has read.
  void shutdown() override;

 private:
  /// What a command runs on: the queue of the group, that of messages to a rank, or one of messages
  /// from a rank with a tag.
  enum class Way : std::uint8_t { kGroup, kTo, kFrom };
  struct Call {
    const char* name;
    c10d::OpType type;
    bool same_bytes = false;  ///< tensors are as large on all ranks
    Way way = Way::kGroup;
    int peer = -1;
    int tag = 0;  ///< of what is received
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    Tensors outputs = {};
  };
  using Body = Command::Body;

  WorkPtr launch(const Call& call, const Operands& operands, Body body);
  WorkPtr submit(const Call& call, const Operands& operands, Body body, c10::DeviceIndex index,
                 bool on_device) LOOM_REQUIRES(mutex_);
  void record(const Call& call, const Operands& operands, std::uint64_t number,
              std::shared_ptr<Completion> completion, std::int64_t timeout_ns)
      LOOM_REQUIRES(mutex_);
  /// Holds a caller that is far ahead of the group's queue. Messages are not held: what makes room
  /// behind a send may be a receive that the caller has yet to ask for, and the other way round.
  void wait_for_room() LOOM_EXCLUDES(mutex_);
  /// On the current stream.
  static void copy_results(const Operands& operands);
  Queue& queue_of(const Call& call, int device) LOOM_REQUIRES(mutex_);
  WorkPtr make_work(const Call& call, std::uint64_t number, std::vector<WorkLccl::Part> parts,
                    bool on_host) LOOM_REQUIRES(mutex_);
  [[nodiscard]] std::chrono::milliseconds timeout_of(const Call& call) const LOOM_REQUIRES(mutex_);
  /// The Work of what the current stream has made of `work`'s results.
  WorkPtr after_current(const WorkLccl& work, const Tensors& outputs);
  /// Returns what is wrong with what other ranks have sent, or nothing (Engine::unread()).
  [[nodiscard]] std::string leave() noexcept;
  [[nodiscard]] std::string leave_group() noexcept LOOM_REQUIRES(mutex_);
  /// Ends the use of a queue, once what is queued there has run.
  static void give_back(Queue& queue) noexcept;

  const Ptr<Options> options_;
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<HostTensors> host_tensors_ = std::make_shared<HostTensors>();
  mutable Mutex mutex_;
  bool left_ LOOM_GUARDED_BY(mutex_) = false;
  // By way, peer and tag.
  std::map<std::tuple<Way, int, int>, Queue*> queues_ LOOM_GUARDED_BY(mutex_);
  // By way and peer.
  std::map<std::pair<Way, int>, std::uint64_t> numbers_ LOOM_GUARDED_BY(mutex_);
  std::uint64_t messages_ LOOM_GUARDED_BY(mutex_) = 0;  // that were called
  struct Coalesced {
    std::vector<WorkLccl::Part> parts;
    Tensors outputs;
    bool on_host = false;
  };
  std::optional<Coalesced> coalesced_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom::distributed
