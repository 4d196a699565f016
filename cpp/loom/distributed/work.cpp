// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/work.h"

#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/base/options.h"
#include "loom/device/timeline.h"
#include "loom/device/unheld_submissions.h"
#include "loom/device/wait_wrapper.h"
#include "loom/distributed/deadline.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <utility>

namespace loom::distributed {
namespace {

bool is_limited(std::chrono::milliseconds timeout) {
  return timeout != kNoTimeout && timeout != c10d::kUnsetTimeout;
}

std::exception_ptr error_of(const Completion& completion) {
  // Made anew for each who is told: exceptions collect what those add who pass them on.
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, completion.why()));
}

}  // namespace

WorkLccl::WorkLccl(std::shared_ptr<Engine> engine, c10d::OpType type, std::uint64_t number,
                   std::vector<Part> parts, std::vector<at::Tensor> outputs, Results results,
                   std::shared_ptr<HostTensors> host_tensors, std::chrono::milliseconds timeout)
    : Work(engine->rank(), type),
      engine_(std::move(engine)),
      number_(number),
      parts_(std::move(parts)),
      outputs_(std::move(outputs)),
      results_(results),
      host_tensors_(std::move(host_tensors)),
      timeout_(timeout) {}

// What is copied behind the operation is part of it.
bool WorkLccl::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.completion->ended() && part.queue->timeline().reached(part.position);
  });
}

bool WorkLccl::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.completion->state() == Completion::kDone;
  });
}

std::exception_ptr WorkLccl::exception() const {
  for (const Part& part : parts_) {
    if (part.completion->state() == Completion::kFailed) return error_of(*part.completion);
  }
  return nullptr;
}

int WorkLccl::sourceRank() const {
  wait_for_parts();
  check();
  return parts_.empty() ? -1 : parts_.front().completion->source();
}

std::vector<at::Tensor> WorkLccl::result() { return outputs_; }

void WorkLccl::check() const {
  const std::exception_ptr error = exception();
  if (error == nullptr) return;
  note_told();
  std::rethrow_exception(error);
}

void WorkLccl::note_told() const {
  for (const Part& part : parts_) part.completion->note_told();
}

// The queue may have another group's error to tell, and this one's is told by check().
void WorkLccl::wait_for_parts() const {
  for (const Part& part : parts_) {
    part.queue->timeline().wait(part.position, Timeline::Signals::kHandled);
  }
}

void WorkLccl::synchronize() {
  for (const Part& part : parts_) {
    current_queue(device()).wait_for(part.queue->timeline(), part.position);
  }
}

// The queue may be that of another device, whose tensors came first.
c10::DeviceIndex WorkLccl::device() const {
  if (results_ == Results::kDevice && !outputs_.empty()) return outputs_.front().device().index();
  return static_cast<c10::DeviceIndex>(parts_.front().queue->id().device);
}

void WorkLccl::blockCurrentStream() {
  check();
  synchronize();
}

bool WorkLccl::wait(std::chrono::milliseconds timeout) {
  check();
  if (results_ == Results::kHost || is_limited(timeout) || options().launch_blocking) {
    wait_on_host(timeout);
  }
  synchronize();
  return true;
}

void WorkLccl::wait_on_host(std::chrono::milliseconds timeout) {
  is_limited(timeout) ? wait_limited(timeout) : wait_for_parts();
  host_tensors_->release_ended();
  check();
}

void WorkLccl::wait_limited(std::chrono::milliseconds timeout) {
  const std::int64_t until = deadline_after(timeout);
  struct Waited {
    const std::vector<Part>& parts;
    std::int64_t until;
    bool ended;
  } waited{parts_, until, false};
  for (;;) {
    waited.until = std::min(until, now_ns() + Timeline::kSignalPeriodNs);
    call_in_wait_wrapper(
        [](void* context) {
          auto& state = *static_cast<Waited*>(context);
          state.ended = std::all_of(state.parts.begin(), state.parts.end(), [&](const Part& part) {
            return part.completion->wait(state.until);
          });
        },
        &waited);
    if (waited.ended || waited.until == until) break;
    handle_signals();
  }
  check();
  if (waited.ended) return;
  const std::string why =
      loom::detail::concat("expected operation number ", number_, " to end within ",
                           timeout.count(), " ms, which it has not");
  engine_->abort(loom::detail::concat("rank ", engine_->rank(), " ", why));
  note_told();
  C10_THROW_ERROR(DistBackendError, engine_->prefix() + why);
}

void WorkLccl::abort() {
  engine_->abort(
      loom::detail::concat("rank ", engine_->rank(), " has aborted operation number ", number_));
}

c10::intrusive_ptr<c10::ivalue::Future> WorkLccl::getFuture() {
  const c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  if (results_ == Results::kHost || parts_.empty()) {
    // Nobody but the worker would be there to complete it later, and callbacks may want the GIL.
    wait_on_host(kNoTimeout);
    auto future = c10::make_intrusive<c10::ivalue::Future>(type);
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }
  // Completed at once: who waits for it, waits for the stream's place at which it was.
  Stream stream = stream_of(*parts_.front().queue);
  if (stream.device_index() != device()) stream = stream_from_pool(false, device());
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(type, std::vector<c10::Device>{to_c10(device())});
  {
    const UnheldSubmissions unheld;  // messages may be queued there (ProcessGroupLccl)
    for (const Part& part : parts_) {
      stream.queue().wait_for(part.queue->timeline(), part.position);
    }
  }
  const StreamGuard guard(stream);
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkLccl::getFutureResult() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  wait_for_parts();
  const bool failed = exception() != nullptr;
  future->markCompleted(
      static_cast<std::int64_t>(failed ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS));
  return future;
}

float WorkLccl::getDuration() const {
  TORCH_CHECK(isSuccess() && !parts_.empty(),
              "get_duration(): expected work that has ended without an error");
  return static_cast<float>(static_cast<double>(parts_.front().completion->duration_ns()) * 1e-6);
}

std::uint64_t WorkLccl::getSequencenumber() const { return number_; }

}  // namespace loom::distributed
