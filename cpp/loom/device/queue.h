// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A queue runs commands in the order of their submission, one after the other, on a worker thread
// of its own that starts with the first command. Position n is the n-th command ever submitted;
// the queue's timeline reaches n when that command has finished and its callable is destroyed.
// Thread: any thread may submit, ask and wait. Commands of one thread keep their order.
// Commands that are still queued when the process exits are not run.
// While a queue is captured (command_graph.h), commands are kept in the graph instead, and nothing
// can be waited for.

#include "loom/base/export.h"
#include "loom/base/float_mode.h"
#include "loom/base/mutex.h"
#include "loom/device/awaited_command.h"
#include "loom/device/command_buffer.h"
#include "loom/device/command_graph.h"
#include "loom/device/cores.h"
#include "loom/device/error_origin.h"
#include "loom/device/failure.h"
#include "loom/device/open_command.h"
#include "loom/device/thread.h"
#include "loom/device/timeline.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loom {

class LOOM_API Queue {
 public:
  /// Priorities are kHighestPriority ... 0.
  static constexpr int kHighestPriority = -1;

  Queue(QueueId id, Cores& cores);
  /// Stops the worker after the current command; what is still queued is destroyed without being
  /// run. Requires: nobody waits for this queue.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Queues `callable` (called once, with no arguments, then destroyed, both on the worker) and
  /// returns its position. `name` must outlive the command (a literal or an interned string): it
  /// is the operator's name in errors and profiles. It runs with denormals flushed if the calling
  /// thread flushes them (FloatMode::of_submission()). A callable may have a member
  /// `void accesses(AccessList&) const` that lists the device memory it reads and writes, and a
  /// member `const char* label() const` that says what profiles call it.
  /// If it throws, what it should have written is marked (failed_memory.h), and the exception is
  /// kept for synchronize(), the first one until it is thrown. Later commands run all the same,
  /// but for those that read what is marked: their results are marked, too, and a callable with a
  /// member `void failed(const FailurePtr&)`, which must not throw, is told. One with a member
  /// `void run_checked()` is called by that while something is marked, and looks after its parts
  /// itself (run_part()).
  /// With LOOM_LAUNCH_BLOCKING=1 it returns after the command has run, and throws its exception.
  /// A caller that is far ahead (LOOM_QUEUE_DEPTH commands) is held until the worker has caught up.
  /// While the process exits, commands are dropped. While captured, the command is kept in the
  /// graph, and the position is that of the last command submitted otherwise. Throws: loom::Error
  /// in a forked child of a process that had used the device.
  template <class Callable>
  std::uint64_t submit(const char* name, Callable&& callable) {
    const std::uint64_t position = enqueue(name, std::forward<Callable>(callable));
    if (blocking_) [[unlikely]] {
      finish_blocking(position);
    }
    return position;
  }

  /// As submit(), for a command that may still grow: it stays open until the queue closes `open`
  /// (open_command.h), which happens before the callable may return.
  /// Requires: `open` lives as long as the callable.
  template <class Callable>
  std::uint64_t submit_open(const char* name, Callable&& callable, OpenCommand& open) {
    const std::uint64_t position = enqueue(name, std::forward<Callable>(callable), &open);
    if (blocking_) [[unlikely]] {
      finish_blocking(position);
    }
    return position;
  }

  /// Returns grow(open), where `open` is the open command or null; nobody closes it or submits
  /// anything meanwhile. `grow` must be short and must not submit.
  template <class Grow>
  decltype(auto) with_open(Grow&& grow) {
    MutexLock lock(submit_mutex_);
    // relaxed: changes under this lock only
    return std::forward<Grow>(grow)(open_.load(std::memory_order_relaxed));
  }

  /// Closes the open command, if there is one, and returns submitted(): what has been submitted up
  /// to there is final.
  std::uint64_t seal() noexcept {
    // Relaxed: an open command that another thread has just submitted is that thread's to seal.
    if (open_.load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
      seal_open(nullptr);
    }
    return submitted();
  }
  /// Closes `open` unless it is closed already.
  void seal(OpenCommand& open) noexcept { seal_open(&open); }

  /// Waits until everything submitted so far has run.
  /// Throws: the first exception of a command since the last throw, once, or one of another queue
  /// that kept commands of this one from running, if nobody has seen it; once for each thread, one
  /// that kept values from memory that the host reads past loom; loom::Error when called
  /// by a command of this queue, and while captured; what a signal's handler throws (timeline.h),
  /// and what the host throws when it is told what kernels have noted (host_notice.h).
  void synchronize();

  /// As synchronize() for the commands up to `position` only.
  void synchronize(std::uint64_t position);

  /// As submit(), then waits for the command. For host memory, or results on the caller's stack:
  /// when the wait is given up (a signal), the command has run or never will.
  /// Throws: as synchronize(); then what the command threw, or why it did not run, also if others
  /// have seen that before.
  template <class Callable>
  void submit_and_wait(const char* name, Callable&& callable);

  /// Holds a caller that is far ahead, as submit() does: for who must not be held there
  /// (unheld_submissions.h). Requires: no lock is held. Throws: what a signal's handler throws.
  void wait_for_room() {
    if (submitted() >= room_until_.load(std::memory_order_relaxed)) make_room();
  }

  /// Makes later commands of this queue wait until `timeline` reaches `position`. Does not block
  /// the caller. Requires: `timeline` outlives the wait; the position is final (seal()), or two
  /// queues may wait for each other.
  /// Throws: loom::Error while captured, unless the timeline is the queue's own.
  void wait_for(const Timeline& timeline, std::uint64_t position);

  /// True when everything submitted so far has run. Throws nothing: errors wait for synchronize().
  [[nodiscard]] bool idle() const noexcept { return timeline_.reached(submitted()); }

  /// The position of the last command submitted, which may still grow: who waits for it takes that
  /// of seal().
  [[nodiscard]] std::uint64_t submitted() const noexcept {
    return submitted_.load(std::memory_order_acquire);
  }
  [[nodiscard]] const Timeline& timeline() const noexcept { return timeline_; }
  [[nodiscard]] const QueueId& id() const noexcept { return id_; }
  /// The cores that this queue's kernels run on.
  [[nodiscard]] Cores& cores() const noexcept { return cores_; }

  /// True while commands go to a graph.
  [[nodiscard]] bool captured() const noexcept { return capture_id() != 0; }
  /// The id of that graph, or 0. Relaxed: who begins a capture orders it with what it captures.
  [[nodiscard]] std::uint64_t capture_id() const noexcept {
    return capture_id_.load(std::memory_order_relaxed);
  }
  /// That graph, or null.
  [[nodiscard]] std::shared_ptr<CommandGraph> graph() const;
  /// While captured, refuses `what` (the name of an operator or function) and makes the capture
  /// invalid: throws loom::Error "<what> cannot be captured in a graph: <why>".
  void check_not_captured(std::string_view what, std::string_view why) const {
    if (captured()) [[unlikely]] {
      refuse_capture(what, why);
    }
  }

  /// The queue whose worker the calling thread is, or null.
  [[nodiscard]] static Queue* current() noexcept;

  /// What the next synchronize() would throw, or null; it throws nothing then. Thread: any.
  [[nodiscard]] FailurePtr take_failure() noexcept;

  // For commands that consist of parts; on this queue's worker, within a command.

  /// A part of a command, with accesses of its own.
  struct Part {
    std::string name;  ///< in errors
    std::function<void()> run;
    std::function<void(AccessList&)> accesses;
    std::function<void(const FailurePtr&)> failed = nullptr;  ///< as the member of callables
    std::string stack = {};  ///< where it was submitted, if not with the command
  };
  /// Runs a part as it would run if it were a command: not if it reads failed memory.
  void run_part(const Part& part) noexcept;
  /// The failure that keeps what reads `accesses` from running, or null.
  [[nodiscard]] FailurePtr failure_of(const AccessList& accesses) const;
  /// Marks what `accesses` write, and has the next synchronize() throw unless somebody has seen it.
  void fail_writes(const AccessList& accesses, const FailurePtr& failure) noexcept;
  /// Has the next synchronize() of each thread throw, though others have seen it: what should have
  /// reached memory that the host reads past loom has not.
  void raise_to_each_thread(const FailurePtr& failure) noexcept;

  /// How many times, in this process, a host thread has had to wait: calls of synchronize() of a
  /// queue, event or device (one for each queue), of Timeline::wait() and of a blocking submit(),
  /// by a thread that is not loom's, for work that had not yet finished.
  [[nodiscard]] static std::uint64_t host_waits() noexcept { return Timeline::host_waits(); }

 private:
  friend class CommandGraph;
  enum WorkerState : std::uint32_t { kAwake, kSleeping };
  /// What the next synchronize() throws.
  struct Pending {
    FailurePtr failure;
    std::uint64_t position = 0;
  };
  /// What each thread's synchronize() throws once. No read of the host can be refused there.
  struct Lost {
    FailurePtr failure;
    std::uint64_t position;
    std::uint64_t number;                  ///< of all in this process
    std::uint64_t told_at = 0;             ///< submitted() when the first thread was told
    std::vector<std::uint64_t> told = {};  ///< threads
  };
  static constexpr std::size_t kMostLost = 16;

  template <class Callable>
  std::uint64_t enqueue(const char* name, Callable&& callable, OpenCommand* open = nullptr);

  void seal_open(OpenCommand* only) noexcept;
  void close_open() noexcept LOOM_REQUIRES(submit_mutex_);
  [[nodiscard]] bool accepts_commands() const;
  [[nodiscard]] CommandRecord* begin_launch(const char* name) const;
  void note_stack(std::uint64_t position) LOOM_REQUIRES(submit_mutex_);
  [[nodiscard]] static std::string take_stack() noexcept;
  static void end_launch(CommandRecord& record) noexcept;
  static void abandon_launch(CommandRecord* record) noexcept;
  [[noreturn]] void refuse_capture(std::string_view what, std::string_view why) const;
  /// Sends commands to `graph`; returns false when another graph has the queue.
  bool attach(const std::shared_ptr<CommandGraph>& graph);
  void detach();
  void make_room();
  void start_worker() LOOM_REQUIRES(submit_mutex_);
  void wake_worker() noexcept;
  void finish_blocking(std::uint64_t position);
  void throw_error_up_to(std::uint64_t position);
  [[nodiscard]] FailurePtr take_lost(std::uint64_t position) LOOM_REQUIRES(pending_mutex_);
  void await(std::uint64_t position, detail::Awaited& awaited);

  // On the worker.
  void work();
  [[nodiscard]] bool stopping() const noexcept;
  [[nodiscard]] bool await_command(std::uint64_t done);
  void run_command(std::uint64_t position);
  /// What errors say of a command of a graph: its number, and where it was captured.
  struct GraphPlace {
    std::size_t number, size;
    const std::string* stack;  ///< or null
  };
  void run(const Command& command, const GraphPlace* place = nullptr) noexcept;
  void run_checked(const Command& command, const GraphPlace* place) noexcept;
  [[nodiscard]] static Part part_of(const Command& command, const GraphPlace* place);
  void fail(const Part& part, const std::exception_ptr& error) noexcept;
  void fail(const Command& command, const GraphPlace* place,
            const std::exception_ptr& error) noexcept;
  /// There was no host memory to note what lacks values: all memory counts as failed.
  void fail_everything() noexcept;
  [[nodiscard]] FailurePtr make_failure(const Part& part, const std::exception_ptr& error);
  [[nodiscard]] std::string stack_of_running();
  void keep_failure(const FailurePtr& failure) noexcept;
  void block_on(const Timeline& timeline, std::uint64_t position);

  void stop();

  const QueueId id_;
  Cores& cores_;
  const bool blocking_;
  const std::int64_t spin_ns_;
  /// A host thread that is this many commands ahead is held until half of them have run.
  const std::uint64_t depth_;

  // What only submissions write, on a line that the worker never looks at: a look would take it
  // away from the next one, for as long as a transfer between cores takes. Producers append under
  // the mutex; the worker takes without it what submitted_ has published.
  alignas(64) mutable Mutex submit_mutex_{"Queue::submit_mutex_"};
  // The last command, while it may grow. Written under submit_mutex_; read without it only to see
  // that there is nothing to close.
  std::atomic<OpenCommand*> open_{nullptr};
  // Positions up to here can be submitted without looking at the timeline, whose cache line belongs
  // to the worker. Relaxed: a bound that is off by a few commands does no harm.
  std::atomic<std::uint64_t> room_until_;
  bool started_ LOOM_GUARDED_BY(submit_mutex_) = false;
  // What submissions look at: the worker has started and nothing captures.
  bool plain_ LOOM_GUARDED_BY(submit_mutex_) = false;
  CommandBuffer commands_;

  // Published with the command in place. Sequentially consistent together with worker_state_: the
  // producer writes submitted_, then reads worker_state_; the worker writes worker_state_, then
  // reads submitted_; so one of them sees the other and no wake is missed.
  alignas(64) std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint32_t> worker_state_{kAwake};  ///< a WorkerState; the worker's futex
  std::int64_t moved_ns_ = 0;                        ///< when the worker left a host; its own

  // From here on lines that the worker writes for each command, and no submission looks at.
  alignas(64) Timeline timeline_;
  std::uint64_t running_ = 0;  ///< the worker's command; its own
  FloatMode float_mode_{};     ///< the worker's; its own
  std::atomic<bool> stop_{false};

  Mutex pending_mutex_{"Queue::pending_mutex_"};
  Pending pending_ LOOM_GUARDED_BY(pending_mutex_);
  // pending_.position, or UINT64_MAX: lets a wait without errors do without the mutex. Written
  // before the timeline reaches that position, so who has seen it reached sees this: relaxed.
  std::atomic<std::uint64_t> failed_at_{UINT64_MAX};
  std::vector<Lost> lost_ LOOM_GUARDED_BY(pending_mutex_);  ///< kMostLost at most, oldest first
  std::atomic<std::uint64_t> lost_at_{UINT64_MAX};  ///< the first one's position; as failed_at_

  Mutex blocked_mutex_{"Queue::blocked_mutex_"};
  const Timeline* blocked_on_ LOOM_GUARDED_BY(blocked_mutex_) = nullptr;

  // Where commands were submitted that have not run yet, oldest first; while error stacks are on.
  std::deque<std::pair<std::uint64_t, std::string>> stacks_ LOOM_GUARDED_BY(submit_mutex_);

  // Apart from what each submission touches.
  std::shared_ptr<CommandGraph> graph_ LOOM_GUARDED_BY(submit_mutex_);
  std::atomic<std::uint64_t> capture_id_{0};  ///< graph_->id(), or 0; written under the mutex

  std::unique_ptr<LoomThread> worker_;
};

}  // namespace loom

#include "loom/device/queue_submit.h"
