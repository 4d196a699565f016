// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The error of a command, as those share it who must hear of it: the queue that raises it at the
// next synchronisation, the memory that lacks values because of it (failed_memory.h), and the end
// of the process, where an error that nobody has seen is printed. Thread: any.

#include "loom/base/export.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

namespace loom {

class LOOM_API Failure {
 public:
  /// `error`: what is thrown; `text`: what is printed, for people.
  Failure(std::exception_ptr error, std::string text)
      : error_(std::move(error)), text_(std::move(text)) {}
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Whether somebody has been told.
  [[nodiscard]] bool seen() const noexcept {
    return seen_.load(std::memory_order_relaxed);  // relaxed: orders nothing, here and below
  }
  /// True for the first caller.
  bool note_seen() noexcept { return !seen_.exchange(true, std::memory_order_relaxed); }
  /// Tells the caller.
  [[noreturn]] void raise() {
    note_seen();
    std::rethrow_exception(error_);
  }

 private:
  const std::exception_ptr error_;
  const std::string text_;
  std::atomic<bool> seen_{false};
};

using FailurePtr = std::shared_ptr<Failure>;

namespace detail {

/// For what fails while there is no host memory for a failure of its own. Made by the first call.
[[nodiscard]] LOOM_API const FailurePtr& failure_without_memory();

/// A thread that waits, for failures that each thread is told of.
struct WaitingThread {
  std::uint64_t id;     ///< unique in the process; 0: has not waited yet
  std::uint64_t since;  ///< the number of such failures there were at its first wait
};
inline constinit thread_local WaitingThread t_waiting_thread{0, 0};

LOOM_API void number_waiting_thread() noexcept;
/// The number of the next such failure, from 1.
[[nodiscard]] LOOM_API std::uint64_t next_lost_number() noexcept;

inline void note_waiting_thread() noexcept {
  if (t_waiting_thread.id == 0) [[unlikely]] {
    number_waiting_thread();
  }
}

}  // namespace detail

/// Keeps the failure for report_unseen_failures(), with a bounded number of others.
LOOM_API void remember_failure(const FailurePtr& failure) noexcept;

/// Prints the failures that nobody has seen to stderr, each once; called when the process ends.
/// Nothing in a forked child.
LOOM_API void report_unseen_failures() noexcept;

}  // namespace loom
