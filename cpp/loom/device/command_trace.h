// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What profilers see of the device: for each command that was submitted while the trace is on, who
// launched it and when it ran. A submission takes a record from a bounded store under a short
// mutex, and the command carries it; the queue's worker writes into that record alone and sets its
// flag with release order, so it takes no lock, makes no allocation of its own and never waits.
// When the store is full, commands run unrecorded and are counted. Off, it costs nothing (queue.h).
// Thread: any.

#include "loom/base/export.h"
#include "loom/base/mutex.h"
#include "loom/device/queue.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace loom {

/// What a thread is doing when it launches, in the numbers of whoever traces; 0 = nothing known.
struct LaunchContext {
  std::uint64_t session =
      0;  ///< whose numbers these are: a thread may keep those of an earlier one
  std::uint64_t operation = 0;
  std::uint64_t annotation = 0;
};

/// One command. Times are nanoseconds of the steady clock (futex.h, now_ns()).
struct CommandSpan {
  const char* name = nullptr;
  QueueId queue;
  LaunchContext context;
  std::int32_t thread = 0;  ///< the system's number of the launching thread
  std::int64_t launch_begin_ns = 0;
  std::int64_t launch_end_ns = 0;  ///< 0 = still in submit() when the trace ended
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;
  std::size_t bytes_read = 0;     ///< of device memory, as far as the command lists it
  std::size_t bytes_written = 0;  ///< likewise
};

/// A span that is being written: by the submitter until the command is published, then by the
/// worker that runs it. The submitter's last word, when submit() ends, stands apart, since the
/// worker may be done before.
struct CommandRecord {
  CommandSpan span;
  const Queue* queue = nullptr;
  std::atomic<bool> finished{false};           ///< release / acquire: the worker's part is complete
  std::atomic<std::int64_t> launch_end_ns{0};  ///< release / acquire: 0 = the submitter is not done
};

class LOOM_API CommandTrace {
 public:
  /// 1 Mi commands, some 130 MB when all are used.
  static constexpr std::size_t kDefaultCapacity = std::size_t{1} << 20;

  struct Result {
    std::vector<CommandSpan> spans;  ///< in the order of their launches
    std::uint64_t dropped = 0;       ///< commands that found the store full
    std::uint64_t unfinished = 0;    ///< commands that had not run when the trace ended
  };

  /// The trace of the process.
  [[nodiscard]] static CommandTrace& instance();

  /// Records commands from here on; what an earlier start() recorded is forgotten.
  void start(std::size_t capacity = kDefaultCapacity);

  /// Ends the recording, waits for the commands that were recorded (not for their errors, which
  /// stay with their queues), and hands out what ran. Commands that another thread is submitting
  /// meanwhile, or that never run because the process exits, count as unfinished.
  /// Called on a loom thread or in a forked child, it does not wait. Takes no wait wrapper (GIL).
  /// Requires: the queues that were recorded still exist.
  [[nodiscard]] Result stop();

  /// A record for a command that the calling thread is about to submit, or null.
  [[nodiscard]] CommandRecord* begin(const char* name, const Queue& queue) noexcept;

  /// What begin() notes for the calling thread.
  static void set_context(LaunchContext context) noexcept;
  [[nodiscard]] static LaunchContext context() noexcept;

 private:
  // Records keep their addresses. A store that is stopped while somebody may still write into it
  // is kept until nobody does.
  struct Store {
    static constexpr std::size_t kChunk = 1024;
    explicit Store(std::size_t most) : capacity(most) {}
    [[nodiscard]] CommandRecord* take();
    template <class Visit>
    void for_each(Visit&& visit) const;
    [[nodiscard]] bool in_use() const;
    /// Waits for the commands.
    [[nodiscard]] Result read() const;

    const std::size_t capacity;
    std::size_t used = 0;
    std::uint64_t dropped = 0;
    std::vector<std::unique_ptr<CommandRecord[]>> chunks;
  };

  CommandTrace() = default;
  void retire(std::unique_ptr<Store> store) noexcept LOOM_REQUIRES(mutex_);

  Mutex mutex_;
  std::unique_ptr<Store> store_ LOOM_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Store>> retired_ LOOM_GUARDED_BY(mutex_);
};

/// By the submitter, when it has published the command.
void note_launched(CommandRecord& record) noexcept;
/// By the submitter, when the command was not accepted: nobody else has the record.
void note_abandoned(CommandRecord& record) noexcept;
/// On the worker, around the command.
void note_start(CommandRecord& record, const Command& command) noexcept;
void note_end(CommandRecord& record) noexcept;

}  // namespace loom
