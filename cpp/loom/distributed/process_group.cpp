// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/process_group.h"

#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/device/device.h"
#include "loom/device/queue.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>

namespace loom::distributed {
namespace {

/// How many operations records() tells of.
constexpr std::size_t kRecords = 1024;

std::int64_t deadline_after(std::chrono::milliseconds timeout) {
  return now_ns() + std::chrono::nanoseconds(timeout).count();
}

}  // namespace

ProcessGroupLccl::ProcessGroupLccl(const Ptr<c10d::Store>& store, int rank, int size,
                                   Ptr<Options> options)
    : Backend(rank, size),
      options_(std::move(options)),
      engine_(connect(store, rank, size, options_->group_name, deadline_after(options_->timeout))) {
  init();
}

ProcessGroupLccl::~ProcessGroupLccl() { leave(); }

void ProcessGroupLccl::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
}

std::uint64_t ProcessGroupLccl::getSequenceNumberForGroup() {
  MutexLock lock(mutex_);
  return numbers_[{Way::kGroup, -1}];
}

c10d::ErrorType ProcessGroupLccl::getError() {
  MutexLock lock(mutex_);
  for (const Recorded& record : records_) {
    if (record.completion->state() == Completion::kFailed) return c10d::ErrorType::COMM_ERROR;
  }
  return engine_ == nullptr || engine_->reason().empty() ? c10d::ErrorType::SUCCESS
                                                         : c10d::ErrorType::REMOTE_ERROR;
}

Queue& ProcessGroupLccl::queue_of(const Call& call, int index) {
  Queue*& queue = queues_[{call.way, call.peer}];
  if (queue == nullptr) queue = &device(index).lend_queue();
  return *queue;
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::launch(const Call& call, const Operands& operands,
                                                   Body body) {
  const bool on_device = operands.device() && !operands.device()->is_cpu();
  const c10::DeviceIndex index = on_device ? operands.device()->index() : current_device();
  Queue& current = current_queue(index);
  current.check_not_captured(call.name, "other ranks take part in it");
  MutexLock lock(mutex_);
  TORCH_CHECK(engine_ != nullptr, "lccl: ", call.name, ": the process group has been shut down");
  engine_->check_alive(call.name);
  release_host_tensors();
  Queue& queue = queue_of(call, index);
  const std::uint64_t number = numbers_[{call.way, call.peer}]++;
  const std::int64_t timeout_ns =
      std::chrono::nanoseconds(call.timeout == c10d::kUnsetTimeout ? options_->timeout
                                                                   : call.timeout)
          .count();
  auto completion = std::make_shared<Completion>();
  // Also for tensors of the cpu, which hold what a queued copy to them writes: in the order of the
  // calls.
  queue.wait_for(current.timeline(), current.seal());
  const std::uint64_t position =
      queue.submit(call.name, Command(engine_, completion, {call.name, number}, timeout_ns,
                                      operands.accesses(), std::move(body)));
  if (on_device) {
    for (const at::Tensor& tensor : operands.tensors()) {
      record_queue(tensor.storage().data_ptr(), queue);
    }
  } else if (!operands.tensors().empty()) {
    host_tensors_.push_back({completion, operands.tensors()});
  }
  if (records_.size() == kRecords) records_.pop_front();
  records_.push_back({call.name, number, operands.bytes(), completion});
  return make_work(call, number, {{std::move(completion), &queue, position}}, !on_device);
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::make_work(const Call& call, std::uint64_t number,
                                                      std::vector<WorkLccl::Part> parts,
                                                      bool on_host) {
  if (coalesced_) {
    for (WorkLccl::Part& part : parts) coalesced_->parts.push_back(part);
    coalesced_->outputs.insert(coalesced_->outputs.end(), call.outputs.begin(), call.outputs.end());
    coalesced_->on_host = coalesced_->on_host || on_host;
  }
  return c10::make_intrusive<WorkLccl>(
      engine_, call.type, number, std::move(parts), call.outputs,
      on_host ? WorkLccl::Results::kHost : WorkLccl::Results::kDevice);
}

void ProcessGroupLccl::startCoalescing() {
  MutexLock lock(mutex_);
  coalesced_.emplace();
}

// Commands run in order on the group's queue, and messages on their own: there is nothing to gain
// from posting them together, but one Work for all.
ProcessGroupLccl::WorkPtr ProcessGroupLccl::endCoalescing() {
  MutexLock lock(mutex_);
  TORCH_CHECK(coalesced_, "endCoalescing(): expected a startCoalescing() before");
  Coalesced all = std::move(*coalesced_);
  coalesced_.reset();
  TORCH_CHECK(engine_ != nullptr, "lccl: endCoalescing(): the process group has been shut down");
  const Call call{.name = "coalesced", .type = c10d::OpType::COALESCED, .outputs = all.outputs};
  return make_work(call, numbers_[{Way::kGroup, -1}], std::move(all.parts), all.on_host);
}

void ProcessGroupLccl::release_host_tensors() {
  std::erase_if(host_tensors_, [](const HostTensors& held) { return held.completion->ended(); });
}

ProcessGroupLccl::Ptr<c10d::Backend> ProcessGroupLccl::split(
    const Ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const Ptr<c10d::Backend::Options>& options) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) return nullptr;
  auto own =
      c10::make_intrusive<Options>(options == nullptr ? options_->timeout : options->timeout);
  if (options != nullptr) {
    own->group_name = options->group_name;
    own->global_ranks_in_group = options->global_ranks_in_group;
  }
  return c10::make_intrusive<ProcessGroupLccl>(store, static_cast<int>(found - ranks.begin()),
                                               static_cast<int>(ranks.size()), std::move(own));
}

// The ranks have met when the group was made.
void ProcessGroupLccl::eagerConnectSingleDevice(at::Device /*device*/) {}

void ProcessGroupLccl::abort() {
  MutexLock lock(mutex_);
  if (engine_ != nullptr) {
    engine_->abort(loom::detail::concat("rank ", rank_, " has aborted the group"));
  }
}

void ProcessGroupLccl::shutdown() {
  std::vector<Queue*> queues;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, queue] : queues_) queues.push_back(queue);
  }
  std::exception_ptr first;
  for (Queue* const queue : queues) {
    try {
      queue->synchronize();
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  leave();
  if (first != nullptr) std::rethrow_exception(first);
}

void ProcessGroupLccl::leave() noexcept {
  MutexLock lock(mutex_);
  if (engine_ == nullptr) return;
  bool idle = true;
  for (const auto& [key, queue] : queues_) idle = idle && queue->idle();
  // What is queued would wait for ranks that may wait for this one.
  if (!idle) engine_->abort(loom::detail::concat("rank ", rank_, " has left with work queued"));
  for (const HostTensors& held : host_tensors_) {
    static_cast<void>(held.completion->wait(deadline_after(std::chrono::seconds(1))));
  }
  host_tensors_.clear();
  for (const auto& [key, queue] : queues_) device(queue->id().device).take_back(*queue);
  queues_.clear();
  engine_.reset();
}

std::vector<ProcessGroupLccl::Record> ProcessGroupLccl::records() const {
  MutexLock lock(mutex_);
  std::vector<Record> all;
  for (const Recorded& record : records_) {
    const Completion::State state = record.completion->state();
    all.push_back({record.name, record.number, record.bytes, state,
                   state == Completion::kFailed ? record.completion->why() : ""});
  }
  return all;
}

}  // namespace loom::distributed
