// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether an operation with other ranks has ended, and how. Written by the worker that runs it,
// read by the Work that stands for it. Thread: any.

#include "loom/base/futex.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace loom::distributed {

class Completion {
 public:
  enum State : std::uint32_t { kQueued, kRunning, kDone, kFailed };

  // On the worker, once each.
  void started() noexcept {
    start_ns_ = now_ns();
    state_.store(kRunning, std::memory_order_release);
  }
  void done() noexcept { end(kDone); }
  void failed(std::string why) noexcept {
    why_ = std::move(why);
    end(kFailed);
  }
  void set_source(int rank) noexcept { source_ = rank; }

  [[nodiscard]] State state() const noexcept {
    return static_cast<State>(state_.load(std::memory_order_acquire));
  }
  [[nodiscard]] bool ended() const noexcept { return state() >= kDone; }

  // Once it has ended.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  [[nodiscard]] int source() const noexcept { return source_; }
  [[nodiscard]] std::int64_t duration_ns() const noexcept { return end_ns_ - start_ns_; }

  /// Waits for the end, until `until_ns` (steady clock); returns whether it has come.
  [[nodiscard]] bool wait(std::int64_t until_ns) const noexcept {
    for (;;) {
      const std::uint32_t state = state_.load(std::memory_order_acquire);
      if (state >= kDone) return true;
      const std::int64_t left = until_ns - now_ns();
      if (left <= 0) return false;
      futex_wait_for(state_, state, left);
    }
  }

 private:
  void end(State state) noexcept {
    end_ns_ = now_ns();
    state_.store(state, std::memory_order_release);
    futex_wake(state_);
  }

  // Release by the worker, acquire by readers: what is below is visible to who sees the end.
  std::atomic<std::uint32_t> state_{kQueued};
  std::string why_;
  int source_ = -1;
  std::int64_t start_ns_ = 0, end_ns_ = 0;
};

}  // namespace loom::distributed
