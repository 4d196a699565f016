// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/recorder.h"

#include "loom/base/futex.h"
#include "loom/base/mutex.h"
#include "loom/device/address.h"
#include "loom/device/cores.h"
#include "loom/fusion/executor.h"
#include "loom/fusion/kernel_cache.h"
#include "loom/fusion/plan.h"
#include "loom/fusion/program.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace loom::fusion {
namespace {

thread_local bool t_enabled = true;

/// Programs that wait to be used again: they are large, and made on one thread and dropped on
/// another.
class Pool {
 public:
  std::unique_ptr<Program> take() {
    {
      MutexLock lock(mutex_);
      if (!spare_.empty()) {
        std::unique_ptr<Program> program = std::move(spare_.back());
        spare_.pop_back();
        return program;
      }
    }
    return std::make_unique<Program>();
  }
  void give_back(std::unique_ptr<Program> program) noexcept {
    MutexLock lock(mutex_);
    if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(program));
  }

  static Pool& instance() {
    static auto* const pool = new Pool;  // leaked: queues outlive static destructors
    return *pool;
  }

 private:
  static constexpr std::size_t kMost = 256;

  Pool() { spare_.reserve(kMost); }

  Mutex mutex_;
  std::vector<std::unique_ptr<Program>> spare_ LOOM_GUARDED_BY(mutex_);
};

/// How long a worker waits for another operator: a little longer than a host program takes to call
/// the next one, and not longer than a fraction of what the program takes to run.
std::int64_t patience_ns(const Program& program) noexcept {
  constexpr std::int64_t kLeast = 5'000, kMost = 50'000;
  constexpr double kNsPerElement = 0.1;  // a fraction of what one takes at least
  return std::clamp(
      static_cast<std::int64_t>(static_cast<double>(program.space().numel) * kNsPerElement), kLeast,
      kMost);
}

class RunProgram {
 public:
  explicit RunProgram(std::unique_ptr<Program> program)
      : program_(std::move(program)), patience_ns_(patience_ns(*program_)) {}
  RunProgram(RunProgram&&) noexcept = default;
  RunProgram& operator=(RunProgram&&) noexcept = default;
  ~RunProgram() {
    if (program_ != nullptr) Pool::instance().give_back(std::move(program_));
  }

  void operator()() {
    Queue& queue = *Queue::current();
    await_close(queue);
    thread_local Plan plan;
    plan.make(*program_);
    if (plan.body().outputs.empty()) return;
    const std::int64_t start = now_ns();
    const std::shared_ptr<CachedKernel> cached = KernelCache::instance().find(plan.body());
    const Kernel& kernel = cached->choose(program_->space().numel);
    execute(plan, kernel, queue.cores(), queue.id().priority);
    cached->note_run(*program_, plan.bytes(), now_ns() - start);
  }

  void accesses(AccessList& list) const {
    if (Queue* const queue = Queue::current()) await_close(*queue);
    for (const RecordedLoad& load : program_->loads()) append(list, load.from, false);
    for (const RecordedStore& store : program_->stores()) {
      if (!store.dead) append(list, store.to, true);
    }
  }

 private:
  static void append(AccessList& list, const Location& location, bool writes) {
    list.push_back({device_address(location.begin),
                    static_cast<std::size_t>(location.end - location.begin), writes});
  }

  void await_close(Queue& queue) const {
    Program& program = *program_;
    for (std::uint32_t seen = program.appended(); !program.closed(); seen = program.appended()) {
      if (spin_until([&] { return program.closed(); }, patience_ns_)) return;
      if (program.appended() == seen) queue.seal(program);
    }
  }

  std::unique_ptr<Program> program_;
  std::int64_t patience_ns_;
};

}  // namespace

bool enabled() noexcept { return t_enabled; }
void set_enabled(bool enabled) noexcept { t_enabled = enabled; }

bool record(Queue& queue, const Expression& expression) {
  if (t_enabled) [[likely]] {
    const bool appended = queue.with_open([&](OpenCommand* open) {
      return open != nullptr && static_cast<Program*>(open)->append(expression);
    });
    if (appended) return true;
  }
  std::unique_ptr<Program> fresh = Pool::instance().take();
  fresh->reset();
  Program& program = *fresh;
  if (!program.append(expression)) {
    Pool::instance().give_back(std::move(fresh));
    return false;
  }
  if (t_enabled) [[likely]] {
    queue.submit_open("fused", RunProgram(std::move(fresh)), program);
  } else {
    program.close();
    queue.submit(expression.name(), RunProgram(std::move(fresh)));
  }
  return true;
}

}  // namespace loom::fusion
