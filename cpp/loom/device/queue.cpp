// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/queue.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/base/options.h"
#include "loom/device/command_trace.h"
#include "loom/device/cores.h"
#include "loom/device/failed_memory.h"
#include "loom/device/processors.h"

#include <utility>

namespace loom {
namespace {

// Relaxed: set before the device is used, which is ordered with the worker's start.
std::atomic<ErrorAnnotator> g_annotator{nullptr};

thread_local Queue* t_current = nullptr;

// Relaxed: as above.
std::atomic<StackProvider> g_stack_provider{nullptr};

// Where the command that this thread submits was called, until the queue takes it.
thread_local std::string t_stack;

/// -1 until LOOM_ERROR_STACKS has been read. Relaxed: a setting, which orders nothing.
std::atomic<int> g_error_stacks{-1};

/// What the error of a command says of where it came from.
std::string describe_origin(const std::string& name, std::uint64_t position, const QueueId& queue,
                            const std::string& stack) {
  if (options().launch_blocking) return detail::concat("raised by '", name, "'");
  std::string text = detail::concat("asynchronous error: raised by '", name, "', command ",
                                    position, " of queue ", queue.device, ":", queue.priority, ":",
                                    queue.index, ", submitted earlier");
  if (!stack.empty()) return detail::concat(text, " at\n", stack);
  return text + "; set LOOM_ERROR_STACKS=1 (torch.loom.set_error_stacks(True)) to be told where, "
                "or LOOM_LAUNCH_BLOCKING=1 to have it raised there";
}

/// For an exception that no annotator knows.
AnnotatedError annotate_std_exception(const std::exception_ptr& error, const std::string& origin) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    std::string text = detail::concat(known.what(), " (", origin, ")");
    return {std::make_exception_ptr(Error(text)), text};
  } catch (...) {
    return {error, origin};
  }
}

AnnotatedError annotate(const std::exception_ptr& error, const std::string& origin) {
  if (const ErrorAnnotator annotator = g_annotator.load(std::memory_order_relaxed)) {
    AnnotatedError annotated = annotator(error, origin);
    if (annotated.error != nullptr) return annotated;
  }
  return annotate_std_exception(error, origin);
}

}  // namespace

void set_error_annotator(ErrorAnnotator annotator) noexcept {
  g_annotator.store(annotator, std::memory_order_relaxed);
}

void set_stack_provider(StackProvider provider) noexcept {
  g_stack_provider.store(provider, std::memory_order_relaxed);
}

bool error_stacks() noexcept { return g_error_stacks.load(std::memory_order_relaxed) > 0; }

void set_error_stacks(bool on) {
  g_error_stacks.store(on ? 1 : 0, std::memory_order_relaxed);
  detail::set_observed(detail::Observer::kErrorStacks, on);
}

Queue* Queue::current() noexcept { return t_current; }

Queue::Queue(QueueId id, Cores& cores)
    : id_(id),
      cores_(cores),
      blocking_(options().launch_blocking),
      spin_ns_(options().spin_ns),
      depth_(options().queue_depth),
      room_until_(depth_),
      timeline_(cores) {
  // The first queue reads the option; what the program has set before stands.
  int unset = -1;
  if (g_error_stacks.compare_exchange_strong(unset, 0, std::memory_order_relaxed) &&
      options().error_stacks) {
    set_error_stacks(true);
  }
}

Queue::~Queue() { worker_.reset(); }

bool Queue::accepts_commands() const {
  check_not_forked();
  return !exiting();
}

CommandRecord* Queue::begin_launch(const char* name) const {
  const StackProvider provider = g_stack_provider.load(std::memory_order_relaxed);
  if (error_stacks() && provider != nullptr && !on_loom_thread()) t_stack = provider();
  return CommandTrace::instance().begin(name, *this);
}

void Queue::end_launch(CommandRecord& record) noexcept { note_launched(record); }

void Queue::abandon_launch(CommandRecord* record) noexcept {
  if (record == nullptr) return;
  note_launched(*record);
  note_abandoned(*record);
}

std::string Queue::take_stack() noexcept { return std::exchange(t_stack, {}); }

void Queue::note_stack(std::uint64_t position) {
  const std::uint64_t done = timeline_.completed();
  while (!stacks_.empty() && stacks_.front().first <= done) stacks_.pop_front();
  if (std::string stack = take_stack(); !stack.empty()) {
    stacks_.emplace_back(position, std::move(stack));
  }
}

// The submitter is held without the lock, so that it holds up nobody but itself. Threads of loom
// are never held: this queue might be waiting for theirs.
void Queue::make_room() {
  if (on_loom_thread()) return;
  const std::uint64_t submitted = submitted_.load(std::memory_order_relaxed);
  if (submitted - timeline_.completed() >= depth_) {
    timeline_.wait(submitted - depth_ / 2, Timeline::Signals::kHandled);
  }
  room_until_.store(timeline_.completed() + depth_, std::memory_order_relaxed);
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
    timeline_.wait(position, Timeline::Signals::kHandled);
  }
  if (failed_at_.load(std::memory_order_relaxed) <= position) throw_error_up_to(position);
}

void Queue::throw_error_up_to(std::uint64_t position) {
  Pending pending;
  {
    MutexLock lock(pending_mutex_);
    if (pending_.failure == nullptr || pending_.position > position) return;
    pending = std::exchange(pending_, {});
    failed_at_.store(UINT64_MAX, std::memory_order_relaxed);
  }
  if (pending.failure->note_seen() || pending.again) pending.failure->raise();
}

bool Queue::begin_awaited(Awaited& awaited) noexcept {
  AwaitedState queued = AwaitedState::kQueued;
  // Relaxed: what it decides about, the submitter has written before it submitted.
  return awaited.state.compare_exchange_strong(queued, AwaitedState::kRunning,
                                               std::memory_order_relaxed);
}

void Queue::await(std::uint64_t position, Awaited& awaited) {
  try {
    synchronize(position);
  } catch (...) {
    AwaitedState queued = AwaitedState::kQueued;
    // If it is running it ends soon, and nothing it touches may go before.
    if (!timeline_.reached(position) &&
        !awaited.state.compare_exchange_strong(queued, AwaitedState::kGivenUp,
                                               std::memory_order_relaxed)) {
      timeline_.wait(position);
    }
    throw;
  }
  // Not reached when the process exits.
  if (timeline_.reached(position) && awaited.failure != nullptr) awaited.failure->raise();
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
  running_ = position;
  if (record != nullptr) [[unlikely]] {
    note_start(*record, command);
  }
  run(command);
  if (record != nullptr) [[unlikely]] {
    note_end(*record);
  }
  commands_.pop();
}

void Queue::run(const Command& command, const GraphPlace* place) noexcept {
  if (FailedMemory::any()) [[unlikely]] {
    return run_checked(command, place);
  }
  std::exception_ptr error;
  try {
    command.run();
    return;
  } catch (const GivenUp&) {
    return;
  } catch (...) {
    error = std::current_exception();
  }
  // Outside the handler, so that the last reference to the exception is the one that is kept.
  fail(part_of(command, place), error);
}

void Queue::run_checked(const Command& command, const GraphPlace* place) noexcept {
  if (!command.checks_itself()) return run_part(part_of(command, place));
  std::exception_ptr error;
  try {
    command.run_checked();
    return;
  } catch (...) {
    error = std::current_exception();
  }
  fail(part_of(command, place), error);
}

Queue::Part Queue::part_of(const Command& command, const GraphPlace* place) {
  Part part{command.name(), [command] { command.run(); },
            [command](AccessList& list) { command.accesses(list); },
            [command](const FailurePtr& failure) { command.note_failed(failure); }};
  if (place != nullptr) {
    part.name += detail::concat(" (command ", place->number, " of ", place->size, " of a graph)");
    if (place->stack != nullptr) part.stack = *place->stack;
  }
  return part;
}

void Queue::run_part(const Part& part) noexcept {
  std::exception_ptr error;
  try {
    AccessList accesses;
    part.accesses(accesses);
    if (const FailurePtr failure = failure_of(accesses)) {
      fail_writes(accesses, failure);
      if (part.failed) part.failed(failure);
      return;
    }
    part.run();
    FailedMemory::clear(accesses);
    return;
  } catch (const GivenUp&) {
    return;
  } catch (...) {
    error = std::current_exception();
  }
  fail(part, error);
}

FailurePtr Queue::failure_of(const AccessList& accesses) const {
  return FailedMemory::find(accesses, {this, running_});
}

void Queue::fail_writes(const AccessList& accesses, const FailurePtr& failure) noexcept {
  FailedMemory::mark(accesses, failure, *this);
  keep_failure(failure, false);
}

void Queue::raise_again(const FailurePtr& failure) noexcept { keep_failure(failure, true); }

void Queue::fail(const Part& part, const std::exception_ptr& error) noexcept {
  const FailurePtr failure = make_failure(part, error);
  AccessList accesses;
  part.accesses(accesses);
  fail_writes(accesses, failure);
  if (part.failed) part.failed(failure);
  remember_failure(failure);
}

FailurePtr Queue::make_failure(const Part& part, const std::exception_ptr& error) {
  const std::string origin =
      describe_origin(part.name, running_, id_, part.stack.empty() ? stack_of_running() : part.stack);
  AnnotatedError annotated;
  try {
    annotated = annotate(error, origin);
  } catch (...) {
    annotated = {error, origin};  // no memory for a better text
  }
  return std::make_shared<Failure>(std::move(annotated.error), std::move(annotated.text));
}

std::string Queue::stack_of_running() {
  MutexLock lock(submit_mutex_);
  for (auto& [position, stack] : stacks_) {
    if (position == running_) return stack;
  }
  return {};
}

void Queue::keep_failure(const FailurePtr& failure, bool again) noexcept {
  MutexLock lock(pending_mutex_);
  const bool wanted = again || !failure->seen();
  const bool taken = pending_.failure != nullptr && (pending_.again || !pending_.failure->seen());
  if (taken || !wanted) return;
  pending_ = {failure, running_, again};
  failed_at_.store(running_, std::memory_order_relaxed);
}

}  // namespace loom
