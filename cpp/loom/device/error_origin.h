// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the error of a command says of where it came from: its operator, its place in its queue, and
// where in the host program it was submitted, if that is wanted. Thread: any.

#include "loom/base/export.h"

#include <cstdint>
#include <exception>
#include <string>

namespace loom {

/// What names a queue among all queues of the process.
struct QueueId {
  int device = 0;
  int priority = 0;  ///< 0 = normal, -1 = high (as in CUDA, a lower number goes first)
  int index = 0;     ///< the device's default queue has index 0 and priority 0
  friend bool operator==(const QueueId&, const QueueId&) = default;
};

/// What a layer above makes of an exception: what is thrown, and its text for people.
struct AnnotatedError {
  std::exception_ptr error;
  std::string text;
};

/// Turns what a command threw into what synchronize() throws, so that a layer above can add
/// `origin`, which says where it came from, to the messages of its own exception types. Returns a
/// null error for what it does not know: then a std::exception becomes a loom::Error with that
/// text, anything else stays as it is. Called on the worker.
using ErrorAnnotator = AnnotatedError (*)(const std::exception_ptr& error,
                                          const std::string& origin);

/// Set once, before the device is used.
LOOM_API void set_error_annotator(ErrorAnnotator annotator) noexcept;

/// Returns where the calling thread is in the host program, as text of several lines, or nothing.
/// Called by submissions while error stacks are on; may take locks of the host program (the GIL).
using StackProvider = std::string (*)();

/// Set once, before the device is used; null for none.
LOOM_API void set_stack_provider(StackProvider provider) noexcept;

/// Whether commands that are submitted from now on note where, for their errors. At first:
/// LOOM_ERROR_STACKS.
[[nodiscard]] LOOM_API bool error_stacks() noexcept;
LOOM_API void set_error_stacks(bool on);

namespace detail {

/// "asynchronous error: raised by '<name>', command <position> of queue ..., submitted earlier at
/// <stack>", or how to be told where.
[[nodiscard]] std::string describe_origin(const std::string& name, std::uint64_t position,
                                          const QueueId& queue, const std::string& stack);
/// By the annotator, if it knows the exception.
[[nodiscard]] AnnotatedError annotate(const std::exception_ptr& error, const std::string& origin);
/// Where the calling thread is, while error stacks are on; else nothing.
[[nodiscard]] std::string submission_stack();
/// Called when a queue is made: the first one reads LOOM_ERROR_STACKS.
void read_error_stacks_option();

}  // namespace detail
}  // namespace loom
