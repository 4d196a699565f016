// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tensors of the cpu that commands use: their deleters may want the GIL, which workers never take,
// so host threads drop them. Thread: any host thread.

#include "loom/base/mutex.h"
#include "loom/distributed/completion.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace loom::distributed {

class HostTensors {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// Keeps `tensors` until `completion` has ended, and somebody calls release_ended().
  void keep(std::shared_ptr<Completion> completion, Tensors tensors) {
    MutexLock lock(mutex_);
    held_.push_back({std::move(completion), std::move(tensors)});
  }

  void release_ended() {
    std::vector<Tensors> released;  // goes after the lock: deleters may want the GIL
    MutexLock lock(mutex_);
    std::erase_if(held_, [&](Held& each) {
      if (!each.completion->ended()) return false;
      released.push_back(std::move(each.tensors));
      return true;
    });
  }

  /// Waits for those in use until `until_ns` (steady clock), and drops all. What is still in use
  /// then is kept for good: a command behind work of the user's that takes its time may write it.
  void release_all(std::int64_t until_ns) noexcept {
    std::vector<Held> held;
    {
      MutexLock lock(mutex_);
      held.swap(held_);
    }
    for (Held& each : held) {
      if (each.completion->wait(until_ns)) continue;
      for (at::Tensor& tensor : each.tensors) static_cast<void>(tensor.unsafeReleaseTensorImpl());
    }
  }

 private:
  struct Held {
    std::shared_ptr<Completion> completion;
    Tensors tensors;
  };
  Mutex mutex_;
  std::vector<Held> held_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom::distributed
