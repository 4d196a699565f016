// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/process_group.h"

#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/base/check.h"
#include "loom/base/process_state.h"
#include "loom/device/device.h"
#include "loom/device/open_wait.h"
#include "loom/device/queue.h"
#include "loom/device/unheld_submissions.h"
#include "loom/distributed/deadline.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <new>
#include <unordered_map>
#include <utility>

namespace loom::distributed {
namespace {

/// "lccl:all_reduce", as profiles name what a backend does. They keep views of it.
const std::string& title_of(const char* name) {
  static Mutex mutex;
  // Leaked: a profile may be written when the process ends.
  static auto& titles = *new std::unordered_map<std::string, std::string>;
  MutexLock lock(mutex);
  return titles.try_emplace(name, std::string("lccl:") + name).first->second;
}

/// Requires: somebody profiles.
void begin_record(at::RecordFunction& record, const char* name, const Operands& operands) {
  record._setAsync();  // the operation goes on when the call has ended
  std::vector<c10::IValue> inputs;
  for (const at::Tensor& tensor : operands.inputs()) inputs.emplace_back(tensor);
  record.before(std::string_view(title_of(name)),
                c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
}

}  // namespace

ProcessGroupLccl::ProcessGroupLccl(const Ptr<c10d::Store>& store, int rank, int size,
                                   Ptr<Options> options)
    : Backend(rank, size),
      options_(std::move(options)),
      engine_(connect(store, rank, size, options_->group_name, deadline_after(options_->timeout))) {
  init();
  FlightRecorder::instance().join(*this, *engine_, options_->global_ranks_in_group);
}

ProcessGroupLccl::~ProcessGroupLccl() { static_cast<void>(leave()); }

void ProcessGroupLccl::setTimeout(std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  options_->timeout = timeout;
}

std::uint64_t ProcessGroupLccl::getSequenceNumberForGroup() {
  MutexLock lock(mutex_);
  return numbers_[{Way::kGroup, -1}];
}

c10d::ErrorType ProcessGroupLccl::getError() {
  if (FlightRecorder::instance().has_failed(*this)) return c10d::ErrorType::COMM_ERROR;
  return engine_->reason().empty() ? c10d::ErrorType::SUCCESS : c10d::ErrorType::REMOTE_ERROR;
}

// Tags may be as many as messages: a queue whose messages have all come is another tag's next.
Queue& ProcessGroupLccl::queue_of(const Call& call, int index) {
  const std::tuple key{call.way, call.peer, call.tag};
  if (const auto found = queues_.find(key); found != queues_.end()) return *found->second;
  const auto unused = std::find_if(queues_.begin(), queues_.end(), [&](const auto& entry) {
    return call.way == Way::kFrom && std::get<Way>(entry.first) == Way::kFrom &&
           entry.second->idle();
  });
  if (unused == queues_.end()) return *(queues_[key] = &device(index).lend_queue());
  auto node = queues_.extract(unused);
  node.key() = key;
  return *queues_.insert(std::move(node)).position->second;
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::launch(const Call& call, const Operands& operands,
                                                   Body body) {
  at::RecordFunction record(at::RecordScope::USER_SCOPE);
  if (record.isActive()) begin_record(record, call.name, operands);
  const bool on_device = operands.device() && !operands.device()->is_cpu();
  const c10::DeviceIndex index = on_device ? operands.device()->index() : current_device();
  current_queue(index).check_not_captured(call.name, "other ranks take part in it");
  host_tensors_->release_ended();
  if (call.way == Way::kGroup) wait_for_room();
  WorkPtr work;
  {
    MutexLock lock(mutex_);
    const UnheldSubmissions unheld;
    work = submit(call, operands, std::move(body), index, on_device);
  }
  if (!on_device && !operands.copies().empty()) {
    work->wait();
    copy_results(operands);
  }
  return work;
}

// Without the lock: handlers of signals run meanwhile, and may call the group.
void ProcessGroupLccl::wait_for_room() {
  Queue* queue = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = queues_.find({Way::kGroup, -1, 0});
    if (found != queues_.end()) queue = found->second;
  }
  if (queue != nullptr) queue->wait_for_room();
}

void ProcessGroupLccl::copy_results(const Operands& operands) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& [to, from] : operands.copies()) to.copy_(from);
}

// Before it can fail, and have all that is recorded dumped.
void ProcessGroupLccl::record(const Call& call, const Operands& operands, std::uint64_t number,
                              std::shared_ptr<Completion> completion, std::int64_t timeout_ns) {
  const bool is_message = call.way != Way::kGroup;
  if (is_message) ++messages_;
  FlightRecorder::instance().record(
      *this, {.name = call.name,
              .number = number,
              .bytes = operands.bytes(),
              .completion = std::move(completion),
              .peer = call.peer,
              .is_message = is_message,
              .collectives = numbers_[{Way::kGroup, -1}] + (is_message ? 0 : 1),
              .messages = messages_,
              .inputs = Recorded::shapes_of(operands.inputs()),
              .outputs = Recorded::shapes_of(call.outputs),
              .timeout_ns = timeout_ns});
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::submit(const Call& call, const Operands& operands,
                                                   Body body, c10::DeviceIndex index,
                                                   bool on_device) {
  Queue& current = current_queue(index);
  TORCH_CHECK(!left_, "lccl: ", call.name, ": the process group has been shut down");
  engine_->check_alive(call.name);
  Queue& queue = queue_of(call, index);
  std::uint64_t& next_number = numbers_[{call.way, call.peer}];
  const std::uint64_t number = next_number;
  const std::int64_t timeout_ns = nanoseconds_of(timeout_of(call));
  auto completion = std::make_shared<Completion>();
  collectives::Operation operation{call.name, number};
  operands.describe(operation);
  if (call.same_bytes) {
    operation.bytes = operands.bytes();
    operation.layout = operands.layout();
  }
  record(call, operands, number, completion, timeout_ns);
  // Also for tensors of the cpu, which hold what a queued copy to them writes: in the order of the
  // calls.
  wait_for_all_of(queue, current);
  std::uint64_t position = queue.submit(
      call.name,
      Command(engine_, completion, operation, timeout_ns, operands.accesses(), std::move(body)));
  ++next_number;  // not if one of those has thrown
  if (on_device) {
    for (const at::Tensor& tensor : operands.tensors()) {
      record_queue(tensor.storage().data_ptr(), queue);
    }
    for (const Operands::Copy& copy : operands.copies()) {
      record_queue(copy.to.storage().data_ptr(), queue);
    }
    if (!operands.copies().empty()) {
      const StreamGuard guard(stream_of(queue));
      copy_results(operands);
      position = queue.seal();
    }
  } else if (!operands.tensors().empty()) {
    host_tensors_->keep(completion, operands.tensors());
  }
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
      on_host ? WorkLccl::Results::kHost : WorkLccl::Results::kDevice, host_tensors_,
      timeout_of(call));
}

std::chrono::milliseconds ProcessGroupLccl::timeout_of(const Call& call) const {
  return call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
}

void ProcessGroupLccl::startCoalescing() {
  std::optional<Coalesced> before;  // goes after the lock: its tensors' deleters may want the GIL
  MutexLock lock(mutex_);
  before = std::exchange(coalesced_, Coalesced{});
}

// Commands run in order on the group's queue, and messages on their own: there is nothing to gain
// from posting them together, but one Work for all.
ProcessGroupLccl::WorkPtr ProcessGroupLccl::endCoalescing() {
  Coalesced all;  // goes after the lock, as in startCoalescing()
  MutexLock lock(mutex_);
  TORCH_CHECK(coalesced_, "endCoalescing(): expected a startCoalescing() before");
  all = std::move(*coalesced_);
  coalesced_.reset();
  TORCH_CHECK(!left_, "lccl: endCoalescing(): the process group has been shut down");
  const Call call{.name = "coalesced", .type = c10d::OpType::COALESCED, .outputs = all.outputs};
  return make_work(call, numbers_[{Way::kGroup, -1}], std::move(all.parts), all.on_host);
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::after_current(const WorkLccl& work,
                                                          const Tensors& outputs) {
  std::vector<WorkLccl::Part> parts = work.parts();
  for (WorkLccl::Part& part : parts) {
    Queue& current = current_queue(outputs.front().device().index());
    wait_for_all_of(*part.queue, current);
    part.position = part.queue->seal();  // the wait must not grow: what follows waits for it
  }
  return c10::make_intrusive<WorkLccl>(engine_, c10d::OpType::_ALLREDUCE_SPARSE,
                                       work.getSequencenumber(), std::move(parts), outputs,
                                       WorkLccl::Results::kDevice, host_tensors_, work.timeout());
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

// Without the lock, which a call holds that waits for room in a queue.
void ProcessGroupLccl::abort() {
  engine_->abort(loom::detail::concat("rank ", rank_, " has aborted the group"));
}

void ProcessGroupLccl::shutdown() {
  std::vector<Queue*> queues;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, queue] : queues_) queues.push_back(queue);
  }
  for (Queue* const queue : queues) {
    queue->timeline().wait(queue->seal(), Timeline::Signals::kHandled);
  }
  const std::string unread = leave();
  TORCH_CHECK_WITH(DistBackendError, unread.empty(), unread);
}

std::string ProcessGroupLccl::leave() noexcept {
  if (in_bad_fork()) return {};  // the parent's group goes on
  std::string unread;
  {
    MutexLock lock(mutex_);
    if (left_) return {};
    left_ = true;
    unread = leave_group();
  }
  FlightRecorder::instance().leave(*this);
  // Without the lock: deleters may want the GIL.
  host_tensors_->release_all(deadline_after(std::chrono::seconds(1)));
  return unread;
}

std::string ProcessGroupLccl::leave_group() noexcept {
  bool idle = true;
  for (const auto& [key, queue] : queues_) idle = idle && queue->idle();
  std::string unread;
  try {
    if (idle) {
      unread = engine_->unread();
    } else {
      // What is queued would wait for ranks that may wait for this one. The last command leaves.
      engine_->abort(loom::detail::concat("rank ", rank_, " has left with work queued"));
    }
  } catch (const std::bad_alloc&) {
    if (!idle) engine_->abort("out of memory");  // short: it needs none
  }
  if (idle) engine_->leave();
  for (const auto& [key, queue] : queues_) give_back(*queue);
  queues_.clear();
  return unread;
}

void ProcessGroupLccl::give_back(Queue& queue) noexcept {
  Device& owner = device(queue.id().device);
  if (queue.idle()) return owner.take_back(queue);
  try {
    const UnheldSubmissions unheld;
    queue.submit("leave", [&owner, &queue] { owner.take_back(queue); });
  } catch (const std::exception&) {
    // There is no memory for a command: nobody uses the queue again.
  }
}

}  // namespace loom::distributed
