// SPDX-License-Identifier: BSD-3-Clause
// What a queue does about commands that fail: on the worker, and for those who wait.
#include "loom/base/check.h"
#include "loom/device/failed_memory.h"
#include "loom/device/queue.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <utility>

namespace loom {

void Queue::throw_error_up_to(std::uint64_t position) {
  Pending pending;
  FailurePtr lost;
  {
    MutexLock lock(pending_mutex_);
    lost = take_lost(position);
    if (lost == nullptr && pending_.failure != nullptr && pending_.position <= position) {
      pending = std::exchange(pending_, {});
      failed_at_.store(UINT64_MAX, std::memory_order_relaxed);
    }
  }
  if (lost != nullptr) lost->raise();
  if (pending.failure != nullptr && pending.failure->note_seen()) pending.failure->raise();
}

// Of threads that have waited before, each is told: it may read the memory next. One that is new
// may have been given the memory, or be about something else: it is told if nobody has been yet, or
// if it waits for no more than had been submitted when the first one was. One error stands for all
// that this wait covers.
FailurePtr Queue::take_lost(std::uint64_t position) {
  FailurePtr first;
  const auto& [thread, since] = detail::t_waiting_thread;
  for (Lost& lost : lost_) {
    if (lost.position > position) continue;
    if (std::find(lost.told.begin(), lost.told.end(), thread) != lost.told.end()) continue;
    const bool concerned = lost.told.empty() || position <= lost.told_at || since < lost.number;
    if (!concerned) continue;
    if (lost.told.empty()) lost.told_at = submitted();
    lost.told.push_back(thread);
    if (first == nullptr) first = lost.failure;
  }
  return first;
}

FailurePtr Queue::take_failure() noexcept {
  if (in_bad_fork()) return nullptr;
  MutexLock lock(pending_mutex_);
  failed_at_.store(UINT64_MAX, std::memory_order_relaxed);
  lost_at_.store(UINT64_MAX, std::memory_order_relaxed);
  lost_.clear();  // the next user of the queue has nothing to do with it
  return std::exchange(pending_, {}).failure;
}

namespace {

// A command that has not begun never runs then. One that has ends soon, also when the process
// exits, and nothing that it touches may go before.
void give_up_or_wait(const Timeline& timeline, std::uint64_t position, detail::Awaited& awaited) {
  if (timeline.reached(position) || awaited.give_up()) return;
  for (;;) {
    timeline.wait(position);
    if (timeline.reached(position)) return;
    // The process exits: waits return at once. The thread has nothing else to do.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void Queue::await(std::uint64_t position, detail::Awaited& awaited) {
  try {
    synchronize(position);
  } catch (...) {
    give_up_or_wait(timeline_, position, awaited);
    throw;
  }
  give_up_or_wait(timeline_, position, awaited);
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
  fail(command, place, error);
}

void Queue::run_checked(const Command& command, const GraphPlace* place) noexcept {
  std::exception_ptr error;
  try {
    command.checks_itself() ? command.run_checked() : run_part(part_of(command, place));
    return;
  } catch (...) {
    error = std::current_exception();
  }
  fail(command, place, error);
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
  try {
    if (FailedMemory::mark(accesses, failure, *this)) raise_to_each_thread(failure);
  } catch (const std::bad_alloc&) {
    return fail_everything();
  }
  keep_failure(failure);
}

void Queue::raise_to_each_thread(const FailurePtr& failure) noexcept {
  if (in_bad_fork()) return;
  MutexLock lock(pending_mutex_);
  const bool known =
      !lost_.empty() && lost_.back().failure == failure && lost_.back().position == running_;
  if (known) return;
  // There is room for one more than are kept: nothing is allocated here.
  lost_.push_back({failure, running_, detail::next_lost_number()});
  if (lost_.size() > kMostLost) lost_.erase(lost_.begin());
  lost_at_.store(lost_.front().position, std::memory_order_relaxed);
}

void Queue::fail(const Part& part, const std::exception_ptr& error) noexcept {
  FailurePtr failure;
  AccessList accesses;
  try {
    failure = make_failure(part, error);
    part.accesses(accesses);
  } catch (...) {
    if (failure == nullptr) failure = detail::failure_without_memory();
    fail_everything();
  }
  fail_writes(accesses, failure);
  if (part.failed) part.failed(failure);
  remember_failure(failure);
}

void Queue::fail(const Command& command, const GraphPlace* place,
                 const std::exception_ptr& error) noexcept {
  std::optional<Part> part;
  try {
    part.emplace(part_of(command, place));
  } catch (...) {
    fail_everything();
    command.note_failed(detail::failure_without_memory());
    return;
  }
  fail(*part, error);
}

void Queue::fail_everything() noexcept {
  const FailurePtr& failure = detail::failure_without_memory();
  FailedMemory::mark_everything(failure);
  raise_to_each_thread(failure);
  keep_failure(failure);
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

void Queue::keep_failure(const FailurePtr& failure) noexcept {
  if (in_bad_fork()) return;
  MutexLock lock(pending_mutex_);
  if (failure->seen() || (pending_.failure != nullptr && !pending_.failure->seen())) return;
  pending_ = {failure, running_};
  failed_at_.store(running_, std::memory_order_relaxed);
}

}  // namespace loom
