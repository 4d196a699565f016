// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Queues that wait for each other by turns, as a stream and one of operations with other ranks do.
// A wait for another queue stays open (open_command.h) while it is the last command of its own: a
// later one for the same timeline makes it longer. So turns that bring nothing but waits are one
// command, and cost no change of threads. Thread: any.

#include "loom/base/export.h"
#include "loom/device/open_command.h"

#include <cstdint>

namespace loom {

class Queue;
class Timeline;

/// What it waits for changes under the lock of the queue's submissions.
class LOOM_API OpenWait final : public OpenCommand {
 public:
  OpenWait(const Timeline& timeline, std::uint64_t position) noexcept
      : timeline(timeline), position(position) {}
  void close() noexcept override {}

  /// `open` if it is one, or null.
  [[nodiscard]] static OpenWait* of(OpenCommand* open) noexcept;

  const Timeline& timeline;
  std::uint64_t position;
};

/// Makes later commands of `queue` wait for all that `other` has got so far, but for an open wait
/// for `queue`: what that waits for has run by then. Throws: as Queue::wait_for().
LOOM_API void wait_for_all_of(Queue& queue, Queue& other);

}  // namespace loom
