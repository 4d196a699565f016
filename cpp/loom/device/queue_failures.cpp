// SPDX-License-Identifier: BSD-3-Clause
// What a queue does about commands that fail: on the worker, and for those who wait.
#include "loom/base/check.h"
#include "loom/device/failed_memory.h"
#include "loom/device/queue.h"

#include <utility>

namespace loom {

void Queue::throw_error_up_to(std::uint64_t position) {
  Pending pending;
  {
    MutexLock lock(pending_mutex_);
    if (pending_.failure == nullptr || pending_.position > position) return;
    pending = std::exchange(pending_, {});
    failed_at_.store(UINT64_MAX, std::memory_order_relaxed);
  }
  if (pending.failure->note_seen() || pending.again) pending.failure->raise();
}

void Queue::await(std::uint64_t position, detail::Awaited& awaited) {
  try {
    synchronize(position);
  } catch (...) {
    // If it is running it ends soon, and nothing it touches may go before.
    if (!timeline_.reached(position) && !awaited.give_up()) timeline_.wait(position);
    throw;
  }
  // Not reached when the process exits.
  if (timeline_.reached(position) && awaited.failure != nullptr) awaited.failure->raise();
}

void Queue::run(const Command& command, const GraphPlace* place) noexcept {
  if (command.float_mode() != float_mode_) [[unlikely]] {
    float_mode_ = command.float_mode();
    float_mode_.set();  // blocks on other threads have that of this one (cores.h)
  }
  if (FailedMemory::any()) [[unlikely]] {
    return run_checked(command, place);
  }
  std::exception_ptr error;
  try {
    command.run();
    return;
  } catch (const detail::GivenUp&) {
    return;
  } catch (...) {
    error = std::current_exception();
  }
  // Outside the handler, so that the last reference to the exception is the one that is kept.
  fail(part_of(command, place), error);
}

void Queue::run_checked(const Command& command, const GraphPlace* place) noexcept {
  if (!command.checks_itself()) return run_part(part_of(command, place));
  std::exception_ptr error;
  try {
    command.run_checked();
    return;
  } catch (...) {
    error = std::current_exception();
  }
  fail(part_of(command, place), error);
}

Queue::Part Queue::part_of(const Command& command, const GraphPlace* place) {
  Part part{command.name(), [command] { command.run(); },
            [command](AccessList& list) { command.accesses(list); },
            [command](const FailurePtr& failure) { command.note_failed(failure); }};
  if (place != nullptr) {
    part.name += detail::concat(" (command ", place->number, " of ", place->size, " of a graph)");
    if (place->stack != nullptr) part.stack = *place->stack;
  }
  return part;
}

void Queue::run_part(const Part& part) noexcept {
  std::exception_ptr error;
  try {
    AccessList accesses;
    part.accesses(accesses);
    if (const FailurePtr failure = failure_of(accesses)) {
      fail_writes(accesses, failure);
      if (part.failed) part.failed(failure);
      return;
    }
    part.run();
    FailedMemory::clear(accesses);
    return;
  } catch (const detail::GivenUp&) {
    return;
  } catch (...) {
    error = std::current_exception();
  }
  fail(part, error);
}

FailurePtr Queue::failure_of(const AccessList& accesses) const {
  return FailedMemory::find(accesses, {this, running_});
}

void Queue::fail_writes(const AccessList& accesses, const FailurePtr& failure) noexcept {
  FailedMemory::mark(accesses, failure, *this);
  keep_failure(failure, false);
}

void Queue::raise_again(const FailurePtr& failure) noexcept { keep_failure(failure, true); }

void Queue::fail(const Part& part, const std::exception_ptr& error) noexcept {
  const FailurePtr failure = make_failure(part, error);
  AccessList accesses;
  part.accesses(accesses);
  fail_writes(accesses, failure);
  if (part.failed) part.failed(failure);
  remember_failure(failure);
}

FailurePtr Queue::make_failure(const Part& part, const std::exception_ptr& error) {
  const std::string origin = detail::describe_origin(
      part.name, running_, id_, part.stack.empty() ? stack_of_running() : part.stack);
  AnnotatedError annotated;
  try {
    annotated = detail::annotate(error, origin);
  } catch (...) {
    annotated = {error, origin};  // no memory for a better text
  }
  return std::make_shared<Failure>(std::move(annotated.error), std::move(annotated.text));
}

std::string Queue::stack_of_running() {
  MutexLock lock(submit_mutex_);
  for (auto& [position, stack] : stacks_) {
    if (position == running_) return stack;
  }
  return {};
}

void Queue::keep_failure(const FailurePtr& failure, bool again) noexcept {
  if (in_bad_fork()) return;
  MutexLock lock(pending_mutex_);
  const bool wanted = again || !failure->seen();
  const bool taken = pending_.failure != nullptr && (pending_.again || !pending_.failure->seen());
  if (taken || !wanted) return;
  pending_ = {failure, running_, again};
  failed_at_.store(running_, std::memory_order_relaxed);
}

}  // namespace loom
