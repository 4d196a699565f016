// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A device: a set of cores with memory near them, its queues and its arena. Devices are made at
// the first call of device(), and live until the process ends (leaked, so that tensors freed by
// static destructors still find them). No thread starts before the first command, no queue exists
// before it is asked for. Thread: everything here may be called from any thread.

#include "loom/base/export.h"
#include "loom/device/arena.h"
#include "loom/device/cores.h"
#include "loom/device/device_count.h"
#include "loom/device/properties.h"
#include "loom/device/queue.h"

#include <memory>

namespace loom {

class LOOM_API Device {
 public:
  /// Queues of each priority in the pool, beside the default queue.
  static constexpr int kQueuesPerPriority = 32;
  /// In the QueueId of the first queue that is lent. With LOOM_LAUNCH_BLOCKING=1 submissions to one
  /// do not wait: its commands may wait for what this thread does next.
  static constexpr int kFirstLentIndex = kQueuesPerPriority + 1;

  Device(int index, DeviceProperties properties);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] int index() const noexcept;
  [[nodiscard]] const DeviceProperties& properties() const noexcept;
  [[nodiscard]] Arena& arena() noexcept;
  [[nodiscard]] Cores& cores() noexcept;

  [[nodiscard]] Queue& default_queue() noexcept;
  /// The queue of the pool with this `index`, from 0 to kQueuesPerPriority - 1. In its QueueId the
  /// index is one more, since {device, 0, 0} is the default queue.
  /// Throws: loom::Error when there is no such priority or index.
  [[nodiscard]] Queue& pool_queue(int priority, int index);
  /// The next queue of that priority, round robin; priorities outside the range are clamped.
  [[nodiscard]] Queue& next_pool_queue(int priority);

  /// A queue for one user alone, whose commands may wait for other processes: in the pool they
  /// would hold up whoever shares it.
  [[nodiscard]] Queue& lend_queue();
  /// Ends lend_queue(), for another one to use it: an error that it has to tell is told by
  /// synchronize() of the device. Requires: nothing more is submitted to it, and all commands have
  /// run, but perhaps the last one, which may be the caller.
  void take_back(Queue& queue);
  /// The queue that was lent with this index, from 0; it may have been taken back.
  /// Throws: loom::Error when there is none.
  [[nodiscard]] Queue& lent_queue(int index);
  /// How many have ever been lent at once.
  [[nodiscard]] int lent_queues() const noexcept;

  /// Waits for all queues. Throws: the first error found, after all queues have been waited for, or
  /// one of a queue that was taken back;
  /// loom::Error when the calling thread captures one of them.
  void synchronize();
  /// Waits for all queues, and leaves their errors to who synchronises with them.
  void drain();
  [[nodiscard]] bool idle() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Throws: loom::Error for a bad LOOM_* variable, when there is no such device, and in a child that
/// was forked after a device was used (thread.h).
[[nodiscard]] LOOM_API Device& device(int index);
/// True once some thread of the process has used a device.
[[nodiscard]] LOOM_API bool device_in_use() noexcept;

}  // namespace loom
