// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A gate holds a command until the test opens it, so that the order of things is the test's to
// decide and no test sleeps. Thread: any.

#include "loom/base/mutex.h"
#include "loom/device/queue.h"

#include <cstdint>

namespace loom::testing {

/// Closed at first; open() lets everybody through, for good.
class Gate {
 public:
  Gate() = default;
  /// Opens, so that a failed test does not leave a worker behind, and lets everybody leave.
  ~Gate() {
    open();
    MutexLock lock(mutex_);
    while (inside_ > 0) changed_.wait(mutex_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  /// Returns once the gate is open.
  void pass() {
    MutexLock lock(mutex_);
    ++arrived_;
    ++inside_;
    changed_.notify_all();
    while (!open_) changed_.wait(mutex_);
    --inside_;
    changed_.notify_all();
  }

  /// Returns once `count` threads have come to the gate, open or not.
  void wait_for_arrivals(int count = 1) {
    MutexLock lock(mutex_);
    while (arrived_ < count) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ LOOM_GUARDED_BY(mutex_) = false;
  int arrived_ LOOM_GUARDED_BY(mutex_) = 0;
  int inside_ LOOM_GUARDED_BY(mutex_) = 0;
};

/// Submits a command that waits at `gate`, which must outlive it.
inline std::uint64_t submit_gate(Queue& queue, Gate& gate) {
  return queue.submit("gate", [&gate] { gate.pass(); });
}

}  // namespace loom::testing
