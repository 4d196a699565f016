// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// record() is how a pointwise operator or a row reduction gets to a worker: it is appended to the
// open program of its queue, or opens one. A program waits in the queue's order like any command;
// when its turn has come it runs as soon as it is closed, or when nobody has added to it for a
// little while. What was recorded is what runs, element for element, whether operators shared a
// program or not. A kernel whose result is a matrix (producer.h) may have a program behind it in
// the same command. Thread: any.

#include "loom/base/export.h"
#include "loom/device/queue.h"
#include "loom/fusion/expression.h"
#include "loom/fusion/producer.h"

#include <memory>

namespace loom::fusion {

/// False, and nothing happened, if the operator cannot be part of any program (too many dimensions,
/// operands that overlap in part, ...): then it is launched like any other.
/// Throws: as Queue::submit().
[[nodiscard]] LOOM_API bool record(Queue& queue, const Expression& expression);

/// Queues a producer, whose command stays open for a program on its result.
/// Throws: as Queue::submit().
LOOM_API void submit_producer(Queue& queue, std::unique_ptr<Producer> producer);

/// Queues a task: in the open command of a producer, ahead of it, if the two have no memory in
/// common that either writes and nothing follows the producer yet; else like any command.
/// Throws: as Queue::submit().
LOOM_API void submit_ahead(Queue& queue, std::unique_ptr<Task> task);

/// Whether operators that this thread records share programs. Off, each runs by itself, with the
/// same results. On at first.
[[nodiscard]] LOOM_API bool enabled() noexcept;
LOOM_API void set_enabled(bool enabled) noexcept;

}  // namespace loom::fusion
