// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/queue.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/base/options.h"
#include "loom/device/command_trace.h"
#include "loom/device/cores.h"
#include "loom/device/device.h"
#include "loom/device/failed_memory.h"
#include "loom/device/host_notice.h"
#include "loom/device/scratch.h"
#include "loom/device/unheld_submissions.h"
#include "loom/device/wait_graph.h"

#include <utility>

namespace loom {
namespace {

// How long a worker waits for the next command before it sleeps, in units of the limit: a host
// program that has waited for a result, or that updates parameters, comes back 50 to 200 us later,
// and would find it asleep: waking it costs both of them as long again.
constexpr std::int64_t kWorkerPatience = 8;

thread_local Queue* t_current = nullptr;

// Where the command that this thread submits was called, until the queue takes it.
thread_local std::string t_stack;

// How many UnheldSubmissions this thread has.
thread_local int t_unheld = 0;

}  // namespace

UnheldSubmissions::UnheldSubmissions() noexcept { ++t_unheld; }
UnheldSubmissions::~UnheldSubmissions() { --t_unheld; }
bool UnheldSubmissions::active() noexcept { return t_unheld != 0; }

Queue* Queue::current() noexcept { return t_current; }

Queue::Queue(QueueId id, Cores& cores)
    : id_(id),
      cores_(cores),
      blocking_(options().launch_blocking && id.index < Device::kFirstLentIndex),
      spin_ns_(options().spin_ns),
      depth_(options().queue_depth),
      room_until_(depth_),
      timeline_(cores) {
  detail::read_error_stacks_option();
  MutexLock lock(pending_mutex_);  // nobody else has the queue yet; for the analysis only
  lost_.reserve(kMostLost + 1);
  (void)detail::failure_without_memory();  // made while there is some
}

Queue::~Queue() {
  worker_.reset();
  wait_graph::forget(*this);
}

bool Queue::accepts_commands() const {
  check_not_forked();
  return !exiting();
}

CommandRecord* Queue::begin_launch(const char* name) const {
  t_stack = detail::submission_stack();
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
    if (UnheldSubmissions::active()) return;
    lock_checks::may_wait("room in a queue");
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
  if (in_bad_fork()) return;  // no worker waits for it
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
  detail::note_waiting_thread();
  if (failed_at_.load(std::memory_order_relaxed) <= position ||
      lost_at_.load(std::memory_order_relaxed) <= position) {
    throw_error_up_to(position);
  }
  detail::notify_host();
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
  set_scratch_device(id_.device);
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

// Returns false when the worker is to stop. A stop wakes through worker_state_ like a command.
bool Queue::await_command(std::uint64_t done) {
  const auto ready = [&] {
    return submitted_.load(std::memory_order_seq_cst) != done ||
           stop_.load(std::memory_order_seq_cst);
  };
  if (!ready()) cores_.leave_host(&moved_ns_);
  if (!spin_until(ready, kWorkerPatience * spin_ns_, spin_ns_ / kSpinHaste)) {
    let_go_of_scratch();
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

}  // namespace loom
