// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A gate holds a command until the test opens it, so that the order of things is the test's to
// decide and no test sleeps. Thread: any.

#include "loom/base/mutex.h"
#include "loom/device/queue.h"

#include <cstdint>
#include <memory>

namespace loom::testing {

/// Closed at first; open() lets everybody through, for good.
class Gate {
 public:
  Gate() = default;
  /// Opens, so that a failed test does not leave a worker behind.
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() { state_->open(); }

  /// Returns once the gate is open. The gate may be destroyed meanwhile.
  void pass() {
    const std::shared_ptr<State> state = state_;
    state->pass();
  }

  /// Returns once `count` threads have come to the gate, open or not.
  void wait_for_arrivals(int count = 1) { state_->wait_for_arrivals(count); }

  /// A call of pass() that may come after the gate is destroyed.
  [[nodiscard]] auto pass_later() const {
    return [state = state_] { state->pass(); };
  }

 private:
  class State {
   public:
    void open() {
      MutexLock lock(mutex_);
      open_ = true;
      changed_.notify_all();
    }
    void pass() {
      MutexLock lock(mutex_);
      ++arrived_;
      changed_.notify_all();
      while (!open_) changed_.wait(mutex_);
    }
    void wait_for_arrivals(int count) {
      MutexLock lock(mutex_);
      while (arrived_ < count) changed_.wait(mutex_);
    }

   private:
    Mutex mutex_;
    CondVar changed_;
    bool open_ LOOM_GUARDED_BY(mutex_) = false;
    int arrived_ LOOM_GUARDED_BY(mutex_) = 0;
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Submits a command that waits at `gate`, which may be destroyed before the command comes there.
inline std::uint64_t submit_gate(Queue& queue, const Gate& gate) {
  return queue.submit("gate", gate.pass_later());
}

}  // namespace loom::testing
