// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether an operation with other ranks has ended, and how. Written by the worker that runs it,
// read by the Work that stands for it. Thread: any.

#include "loom/base/futex.h"
#include "loom/base/mutex.h"
#include "loom/device/failure.h"

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
  /// What its queue raises for it, which comes after failed().
  void set_failure(const FailurePtr& failure) {
    MutexLock lock(mutex_);
    failure_ = failure;
    if (told_) failure->note_seen();
  }

  /// Somebody has been told that it has failed: its queue need not raise that again.
  void note_told() {
    MutexLock lock(mutex_);
    told_ = true;
    if (failure_ != nullptr) failure_->note_seen();
  }

  [[nodiscard]] State state() const noexcept {
    return static_cast<State>(state_.load(std::memory_order_acquire));
  }
  [[nodiscard]] bool ended() const noexcept { return state() >= kDone; }

  /// Of the steady clock; 0 if it has not begun. Once it is no longer queued.
  [[nodiscard]] std::int64_t start_ns() const noexcept { return start_ns_; }

  // Once it has ended.
  [[nodiscard]] std::int64_t end_ns() const noexcept { return end_ns_; }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  [[nodiscard]] int source() const noexcept { return source_; }
  [[nodiscard]] std::int64_t duration_ns() const noexcept { return end_ns_ - start_ns_; }

  /// Waits for the end, until `until_ns` (steady clock); returns whether it has come.
  [[nodiscard]] bool wait(std::int64_t until_ns) noexcept {
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    bool has_ended = false;
    for (;;) {
      const std::uint32_t state = state_.load(std::memory_order_seq_cst);
      has_ended = state >= kDone;
      const std::int64_t left = until_ns - now_ns();
      if (has_ended || left <= 0) break;
      futex_wait_for(state_, state, left);
    }
    waiters_.fetch_sub(1, std::memory_order_relaxed);  // one too many costs a system call
    return has_ended;
  }

 private:
  void end(State state) noexcept {
    end_ns_ = now_ns();
    state_.store(state, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) != 0) futex_wake(state_);
  }

  // Release by the worker, acquire by readers: what is below is visible to who sees the end.
  // Sequentially consistent where one sleeps: the worker writes the state, then looks whether
  // somebody waits; who waits says so, then looks at the state; so one of them sees the other.
  std::atomic<std::uint32_t> state_{kQueued};
  std::atomic<std::uint32_t> waiters_{0};
  std::string why_;
  int source_ = -1;
  std::int64_t start_ns_ = 0, end_ns_ = 0;

  Mutex mutex_;
  bool told_ LOOM_GUARDED_BY(mutex_) = false;
  FailurePtr failure_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom::distributed
