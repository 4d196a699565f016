// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A command that its submitter waits for (Queue::submit_and_wait()), and may give up waiting for:
// then it has not begun and never runs, or it is running and its end is waited for all the same.
// Thread: the submitter and the worker.

#include "loom/device/command_buffer.h"
#include "loom/device/failure.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace loom::detail {

/// What the two share.
class Awaited {
 public:
  /// One of the two is the first; the other one's call returns false. Relaxed: what the command
  /// touches, the submitter has written before it submitted.
  bool begin() noexcept { return leave_queued(State::kBegun); }
  bool give_up() noexcept { return leave_queued(State::kGivenUp); }

  /// Why the command failed. Written before the timeline reaches the command, read after.
  FailurePtr failure;

 private:
  enum class State : std::uint32_t { kQueued, kBegun, kGivenUp };
  bool leave_queued(State to) noexcept {
    State queued = State::kQueued;
    return state_.compare_exchange_strong(queued, to, std::memory_order_relaxed);
  }
  std::atomic<State> state_{State::kQueued};
};

/// Thrown by an awaited command that does not run, as nobody waits any more: no error of anybody's.
struct GivenUp {};

template <class Callable>
struct AwaitedCommand {
  Callable callable;
  std::shared_ptr<Awaited> awaited;

  void operator()() {
    if (!awaited->begin()) throw GivenUp{};
    callable();
  }
  void accesses(AccessList& list) const {
    if constexpr (requires { callable.accesses(list); }) callable.accesses(list);
  }
  void failed(const FailurePtr& failure) noexcept {
    (void)awaited->begin();  // who gives up now waits for the end of this
    awaited->failure = failure;
  }
};

}  // namespace loom::detail
