// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/queue.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/base/options.h"
#include "loom/device/command_trace.h"
#include "loom/device/cores.h"
#include "loom/device/processors.h"

#include <utility>

namespace loom {
namespace {

// Relaxed: set before the device is used, which is ordered with the worker's start.
std::atomic<ErrorAnnotator> g_annotator{nullptr};

thread_local Queue* t_current = nullptr;

/// What synchronize() throws for an exception that no annotator knows.
std::exception_ptr annotate_std_exception(const std::exception_ptr& error, const char* name,
                                          std::uint64_t position, const QueueId& queue) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return std::make_exception_ptr(
        Error(detail::concat(known.what(), " (", describe_command(name, position, queue), ")")));
  } catch (...) {
    return error;
  }
}

/// The exception of a graph's command, and the name of that command in place of the graph's.
std::exception_ptr find_failed_part(std::exception_ptr error, std::string& name) {
  for (;;) {
    try {
      std::rethrow_exception(error);
    } catch (const CommandFailure& part) {
      name = part.name;
      std::exception_ptr inner = part.error;
      error = std::move(inner);
    } catch (...) {
      return error;
    }
  }
}

std::exception_ptr annotate(const std::exception_ptr& thrown, const char* command,
                            std::uint64_t position, const QueueId& queue) {
  std::string part = command;
  const std::exception_ptr error = find_failed_part(thrown, part);
  const char* const name = part.c_str();
  if (const ErrorAnnotator annotator = g_annotator.load(std::memory_order_relaxed)) {
    if (std::exception_ptr annotated = annotator(error, name, position, queue)) return annotated;
  }
  return annotate_std_exception(error, name, position, queue);
}

}  // namespace

void set_error_annotator(ErrorAnnotator annotator) noexcept {
  g_annotator.store(annotator, std::memory_order_relaxed);
}

std::string describe_command(const char* name, std::uint64_t position, const QueueId& queue) {
  std::string origin = detail::concat("raised by '", name, "', command ", position, " of queue ",
                                      queue.device, ":", queue.priority, ":", queue.index);
  if (!options().launch_blocking) {
    origin +=
        ", submitted earlier; set LOOM_LAUNCH_BLOCKING=1 to have it raised where it was submitted";
  }
  return origin;
}

Queue* Queue::current() noexcept { return t_current; }

Queue::Queue(QueueId id, Cores& cores)
    : id_(id),
      cores_(cores),
      blocking_(options().launch_blocking),
      spin_ns_(options().spin_ns),
      timeline_(cores) {}

Queue::~Queue() { worker_.reset(); }

bool Queue::accepts_commands() const {
  check_not_forked();
  return !exiting();
}

CommandRecord* Queue::begin_launch(const char* name) const noexcept {
  return CommandTrace::instance().begin(name, *this);
}

void Queue::end_launch(CommandRecord& record) noexcept { note_launched(record); }

void Queue::abandon_launch(CommandRecord* record) noexcept {
  if (record == nullptr) return;
  note_launched(*record);
  note_abandoned(*record);
}

// The submitter is held without the lock, so that it holds up nobody but itself. Threads of loom
// are never held: this queue might be waiting for theirs.
void Queue::make_room() {
  if (on_loom_thread()) return;
  const std::uint64_t submitted = submitted_.load(std::memory_order_relaxed);
  if (submitted - timeline_.completed() >= kMaxPending) {
    timeline_.wait(submitted - kMaxPending / 2);
  }
  room_until_.store(timeline_.completed() + kMaxPending, std::memory_order_relaxed);
}

void Queue::start_worker() {
  const std::string name =
      detail::concat("loom", id_.device, id_.priority < 0 ? "/hi" : "/q", id_.index);
  worker_ =
      std::make_unique<LoomThread>(name, cores_.cpus(), [this] { work(); }, [this] { stop(); });
  started_ = plain_ = true;
}

std::shared_ptr<CommandGraph> Queue::graph() const {
  MutexLock lock(submit_mutex_);
  return graph_;
}

bool Queue::attach(const std::shared_ptr<CommandGraph>& graph) {
  MutexLock lock(submit_mutex_);
  if (graph_ != nullptr) return graph_ == graph;
  if (open_.load(std::memory_order_relaxed) != nullptr) close_open();
  graph->admit(*this);
  graph_ = graph;
  capture_id_.store(graph->id(), std::memory_order_relaxed);
  plain_ = false;
  return true;
}

void Queue::detach() {
  std::shared_ptr<CommandGraph> graph;  // goes after the lock: it may be the last reference
  MutexLock lock(submit_mutex_);
  if (open_.load(std::memory_order_relaxed) != nullptr) close_open();
  graph = std::move(graph_);
  graph_ = nullptr;
  capture_id_.store(0, std::memory_order_relaxed);
  plain_ = started_;
}

void Queue::refuse_capture(std::string_view what, std::string_view why) const {
  std::string text = detail::concat(what, " cannot be captured in a graph: ", why);
  if (const std::shared_ptr<CommandGraph> graph = this->graph()) graph->invalidate(text);
  throw Error(std::move(text));
}

void Queue::wake_worker() noexcept {
  // Of several producers that have seen it asleep, one makes the system call.
  if (worker_state_.exchange(kAwake, std::memory_order_seq_cst) == kSleeping) {
    futex_wake(worker_state_, 1);
  }
}

void Queue::finish_blocking(std::uint64_t position) {
  if (captured()) return;
  // A command that submits to its own queue cannot wait for it.
  if (t_current != this) synchronize(position);
}

void Queue::close_open() noexcept {
  open_.load(std::memory_order_relaxed)->close();
  open_.store(nullptr, std::memory_order_relaxed);
}

void Queue::seal_open(OpenCommand* only) noexcept {
  MutexLock lock(submit_mutex_);
  OpenCommand* const open = open_.load(std::memory_order_relaxed);
  if (open != nullptr && (only == nullptr || open == only)) close_open();
}

void Queue::synchronize() { synchronize(seal()); }

void Queue::synchronize(std::uint64_t position) {
  check_not_forked();  // an idle queue would let a child read memory that the parent goes on using
  check_not_captured("synchronize()",
                     "what its stream has captured runs when the graph is replayed");
  if (!timeline_.reached(position)) {
    LOOM_CHECK(t_current != this,
               "synchronize(): expected a thread other than the queue's worker, got a command that "
               "waits for its own queue");
    seal();
    timeline_.wait(position);
  }
  if (failed_at_.load(std::memory_order_relaxed) <= position) throw_error_up_to(position);
}

void Queue::throw_error_up_to(std::uint64_t position) {
  std::exception_ptr error;
  {
    MutexLock lock(failure_mutex_);
    if (failure_.error == nullptr || failure_.position > position) return;
    error = std::exchange(failure_.error, nullptr);
    failed_at_.store(UINT64_MAX, std::memory_order_relaxed);
  }
  std::rethrow_exception(std::move(error));
}

void Queue::wait_for(const Timeline& timeline, std::uint64_t position) {
  if (&timeline == &timeline_) return;
  check_not_captured(
      "A wait for an event",
      "the event was not recorded in the capture; record it in a captured stream, or "
      "wait for it before the capture begins");
  if (timeline.reached(position)) return;
  enqueue("wait_for", [this, &timeline, position] { block_on(timeline, position); });
}

void Queue::block_on(const Timeline& timeline, std::uint64_t position) {
  {
    MutexLock lock(blocked_mutex_);
    blocked_on_ = &timeline;
  }
  timeline.wait_unless(position, stop_);
  MutexLock lock(blocked_mutex_);
  blocked_on_ = nullptr;
}

void Queue::stop() {
  stop_.store(true, std::memory_order_seq_cst);
  wake_worker();
  timeline_.interrupt();
  // The mutex keeps the other timeline alive while it is touched: the worker leaves it only after.
  MutexLock lock(blocked_mutex_);
  if (blocked_on_ != nullptr) blocked_on_->interrupt();
}

void Queue::work() {
  t_current = this;
  std::uint64_t done = 0;
  while (await_command(done)) {
    // Acquire: pairs with the producer's store, after which the commands up to it are in place.
    const std::uint64_t available = submitted_.load(std::memory_order_acquire);
    while (done < available) {
      if (stopping()) return;
      run_command(++done);
      timeline_.advance(done);
    }
  }
}

// exiting() is true a little before the exit handler comes to this queue's stop().
// Relaxed: a stop may be seen a command later.
bool Queue::stopping() const noexcept { return stop_.load(std::memory_order_relaxed) || exiting(); }

// The system leaves a worker and the host that waits for it on one processor beside an idle one, as
// neither sleeps: a chain of short grids then takes twice as long.
void Queue::leave_host() noexcept {
  constexpr std::int64_t kMoveNs = 100'000'000;
  const int cpu = cores_.calmer_processor();
  if (cpu < 0) return;
  const std::int64_t now = now_ns();
  if (now - moved_ns_ < kMoveNs) return;
  moved_ns_ = now;
  Processors processors;
  if (processors.move_to(cpu)) processors.restore();
}

// Returns false when the worker is to stop. A stop wakes through worker_state_ like a command.
bool Queue::await_command(std::uint64_t done) {
  const auto ready = [&] {
    return submitted_.load(std::memory_order_seq_cst) != done ||
           stop_.load(std::memory_order_seq_cst);
  };
  if (!ready()) leave_host();
  if (!spin_until(ready, spin_ns_)) {
    for (;;) {
      worker_state_.store(kSleeping, std::memory_order_seq_cst);
      if (ready()) break;
      futex_wait(worker_state_, kSleeping);
    }
    // Relaxed: a producer that still sees kSleeping makes a wake that nobody needs.
    worker_state_.store(kAwake, std::memory_order_relaxed);
  }
  cores_.favour_submitter();
  return !stopping();
}

void Queue::run_command(std::uint64_t position) {
  const Command command = commands_.front();
  CommandRecord* const record = command.record();
  if (record != nullptr) [[unlikely]] {
    note_start(*record, command);
  }
  std::exception_ptr error;
  try {
    command.run();
  } catch (...) {
    error = std::current_exception();
  }
  if (record != nullptr) [[unlikely]] {
    note_end(*record);
  }
  // Outside the handler, so that the last reference to the exception is the one that is kept.
  if (error != nullptr) [[unlikely]] {
    keep_error(std::move(error), command.name(), position);
  }
  commands_.pop();
}

void Queue::keep_error(std::exception_ptr error, const char* name,
                       std::uint64_t position) noexcept {
  {
    MutexLock lock(failure_mutex_);
    if (failure_.error != nullptr) return;
  }
  std::exception_ptr annotated;
  try {
    annotated = annotate(error, name, position, id_);
  } catch (...) {
    annotated = std::move(error);  // no memory for a better text
  }
  MutexLock lock(failure_mutex_);
  failure_ = {std::move(annotated), position};
  failed_at_.store(position, std::memory_order_relaxed);
}

}  // namespace loom
