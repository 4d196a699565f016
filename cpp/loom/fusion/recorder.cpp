// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/recorder.h"

#include "loom/base/futex.h"
#include "loom/base/mutex.h"
#include "loom/device/address.h"
#include "loom/device/cores.h"
#include "loom/device/thread.h"
#include "loom/fusion/executor.h"
#include "loom/fusion/failure_flow.h"
#include "loom/fusion/kernel_cache.h"
#include "loom/fusion/plan.h"
#include "loom/fusion/program.h"
#include "loom/fusion/program_set.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace loom::fusion {
namespace {

thread_local bool t_enabled = true;

/// Sets of programs that wait to be used again: they are large, and made on one thread and dropped
/// on another.
class Pool {
 public:
  std::unique_ptr<ProgramSet> take() {
    {
      MutexLock lock(mutex_);
      if (!spare_.empty()) {
        std::unique_ptr<ProgramSet> set = std::move(spare_.back());
        spare_.pop_back();
        extra_ -= extra(*set);
        return set;
      }
    }
    return std::make_unique<ProgramSet>();
  }
  void give_back(std::unique_ptr<ProgramSet> set) noexcept {
    set->drop_kernels();
    if (in_bad_fork()) return;
    MutexLock lock(mutex_);
    if (spare_.size() == spare_.capacity()) return;
    set->trim(kPrograms + kMostExtra - extra_);
    extra_ += extra(*set);
    spare_.push_back(std::move(set));
  }

  static Pool& instance() {
    static auto* const pool = new Pool;  // leaked: queues outlive static destructors
    return *pool;
  }

 private:
  // Programs, of 8 KB each, that every spare set may keep, and that all of them may keep beyond
  // that.
  static constexpr std::size_t kMost = 256, kPrograms = 8, kMostExtra = 2048;

  static std::size_t extra(const ProgramSet& set) noexcept {
    return std::max(set.kept(), kPrograms) - kPrograms;
  }

  Pool() { spare_.reserve(kMost); }

  Mutex mutex_;
  std::vector<std::unique_ptr<ProgramSet>> spare_ LOOM_GUARDED_BY(mutex_);
  std::size_t extra_ LOOM_GUARDED_BY(mutex_) = 0;  ///< of all spare sets
};

/// How long a worker waits for another operator: a little longer than a host program takes to call
/// the next one, and not longer than a fraction of what the programs take to run. An optimiser
/// computes with a hundred host numbers between two operators.
std::int64_t patience_ns(const ProgramSet& set) noexcept {
  constexpr std::int64_t kLeast = 5'000, kMost = 400'000;
  constexpr double kNsPerElement = 0.1;  // a fraction of what one takes at least
  const auto of = [&](std::int64_t elements) {
    const auto numel = static_cast<double>(elements);
    return std::clamp(static_cast<std::int64_t>(numel * kNsPerElement), kLeast, kMost);
  };
  const Producer* const producer = set.producer();
  if (producer == nullptr) return of(set.elements());
  // It could be at work. But what does not join it goes through its result once more: that is worth
  // the call of a module, which a shorter wait would miss.
  constexpr std::int64_t kModuleCall = 25'000;
  const Matrix result = producer->result();
  const std::int64_t patience = of(result.rows * result.columns);
  return patience >= kModuleCall ? patience : kLeast;
}

/// The text in memory that lives for ever; profiles refer to it. Null once there are very many.
const char* interned(std::string text) {
  constexpr std::size_t kMost = 10'000;
  static Mutex mutex;
  static auto* const texts = new std::set<std::string>;
  MutexLock lock(mutex);
  const auto found = texts->find(text);
  if (found != texts->end()) return found->c_str();
  return texts->size() < kMost ? texts->insert(std::move(text)).first->c_str() : nullptr;
}

/// What a worker needs while it runs a set; kept from one to the next.
struct Workspace {
  std::vector<Plan> plans;
  std::vector<std::shared_ptr<CachedKernel>> kernels;
  std::vector<Work> works;
  std::vector<const Program*> programs;
};

/// Whether an output of the plan takes the place of an operand of the producer, which still reads
/// it for other rows when it has written some.
bool replaces_operand(const Producer& producer, const Plan& plan) {
  AccessList accesses;
  producer.accesses(accesses);
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
    return access.kind == AccessKind::kUpdate &&
           std::any_of(plan.outputs().begin(), plan.outputs().end(), [&](const auto& output) {
             return device_address(output.data) == access.address;
           });
  });
}

class RunPrograms {
 public:
  explicit RunPrograms(std::unique_ptr<ProgramSet> set) : set_(std::move(set)) {}
  RunPrograms(RunPrograms&&) noexcept = default;
  RunPrograms& operator=(RunPrograms&&) noexcept = default;
  ~RunPrograms() {
    if (set_ != nullptr) Pool::instance().give_back(std::move(set_));
  }

  void operator()() {
    Queue& queue = *Queue::current();
    await_close(queue);
    thread_local Workspace space;
    for (const auto& task : set_->tasks()) task->run();
    if (Producer* const producer = set_->producer()) {
      if (run_by_rectangles(*producer, space)) return;
      producer->run(producer->result().data, nullptr);
    }
    run_programs(queue, space);
  }

  /// While memory is marked as failed: part by part, results by what they are computed from.
  void run_checked() {
    Queue& queue = *Queue::current();
    await_close(queue);
    for (const auto& task : set_->tasks()) {
      queue.run_part(
          {task->name(), [&] { task->run(); }, [&](AccessList& list) { task->accesses(list); }});
    }
    if (Producer* const producer = set_->producer()) {
      queue.run_part({producer->name(), [&] { producer->run(producer->result().data, nullptr); },
                      [&](AccessList& list) { producer->accesses(list); }});
    }
    std::vector<FailureFlow> flows;
    for (const auto& program : set_->programs()) flows.emplace_back(*program, queue);
    Workspace space;
    run_programs(queue, space);
    for (FailureFlow& flow : flows) flow.apply(queue);
  }

  void note_captured() noexcept { set_->note_captured(); }

  /// "fused: mul, add, relu", "fused: addmm, gelu", or the producer's name alone.
  [[nodiscard]] const char* label() const {
    constexpr std::size_t kMostOperators = 16;
    std::string text = "fused:";
    const auto programs = set_->programs();
    const Producer* const producer = set_->producer();
    if (programs.empty()) return producer->name();
    const auto operators = programs[0]->operators();
    if (producer != nullptr) {
      text += std::string(" ") + producer->name() + ",";
    } else if (programs.size() == 1 && operators.size() == 1) {
      return operators[0];
    }
    for (std::size_t i = 0; i < std::min(operators.size(), kMostOperators); ++i) {
      text += (i == 0 ? " " : ", ") + std::string(operators[i]);
    }
    if (operators.size() > kMostOperators) text += ", ...";
    if (programs.size() > 1) text += " (" + std::to_string(programs.size()) + " programs)";
    return interned(std::move(text));
  }

  void accesses(AccessList& list) const {
    if (Queue* const queue = Queue::current()) await_close(*queue);
    if (const Producer* const producer = set_->producer()) producer->accesses(list);
    for (const auto& task : set_->tasks()) task->accesses(list);
    for (const auto& program : set_->programs()) {
      for (const RecordedLoad& load : program->loads()) {
        list.push_back(access_of(load.from, program->space(), false));
      }
      for (const RecordedStore& store : program->stores()) {
        if (!store.dead) list.push_back(access_of(store.to, program->space(), true));
      }
    }
  }

 private:
  void await_close(Queue& queue) const {
    ProgramSet& set = *set_;
    for (std::uint32_t seen = set.appended(); !set.closed(); seen = set.appended()) {
      queue.cores().favour_submitter();
      // A program is closed no sooner because somebody else wants this core.
      const std::int64_t patience = patience_ns(set);
      if (spin_until([&] { return set.closed(); }, patience, patience)) return;
      if (set.appended() == seen) queue.seal(set);
    }
  }

  /// False, and nothing happened, if there is no program that can run rectangle by rectangle.
  bool run_by_rectangles(Producer& producer, Workspace& space) const {
    if (set_->programs().empty()) return false;
    const Program& program = *set_->programs()[0];
    const Matrix result = producer.result();
    if (space.plans.empty()) space.plans.resize(1);
    Plan& plan = space.plans[0];
    plan.make(program, result.columns);
    if (plan.body().outputs.empty() || !plan.walks(result)) return false;
    // What nobody sees is overwritten at once, while it is in the cache.
    const bool moves = set_->result_dead() && !replaces_operand(producer, plan);
    std::byte* const to = moves ? plan.move_to_output(result) : result.data;
    const auto kernel = KernelCache::instance().find(plan.body());
    const WorkEpilogue epilogue({&plan, &kernel->choose(program.space().numel)});
    producer.run(to, &epilogue);
    kernel->note_run(program, plan.bytes(), epilogue.nanoseconds());
    return true;
  }

  void run_programs(Queue& queue, Workspace& space) const {
    plan(space);
    if (space.works.empty()) return;
    const std::int64_t start = now_ns();
    execute(space.works, queue.cores(), queue.id().priority);
    note_runs(space, now_ns() - start);
  }

  void plan(Workspace& space) const {
    const auto programs = set_->programs();
    if (space.plans.size() < programs.size()) space.plans.resize(programs.size());
    space.kernels.clear();
    space.works.clear();
    space.programs.clear();
    for (std::size_t p = 0; p < programs.size(); ++p) {
      Plan& plan = space.plans[p];
      plan.make(*programs[p]);
      if (plan.body().outputs.empty()) continue;
      space.kernels.push_back(KernelCache::instance().find(plan.body()));
      const Kernel& kernel = space.kernels.back()->choose(programs[p]->space().numel);
      space.works.push_back({&plan, &kernel});
      space.programs.push_back(programs[p].get());
    }
  }

  // A set's time is its programs' by the bytes that they move.
  static void note_runs(const Workspace& space, std::int64_t nanoseconds) {
    std::uint64_t bytes = 0;
    for (const Work& work : space.works) bytes += work.plan->bytes();
    for (std::size_t w = 0; w < space.works.size(); ++w) {
      const std::uint64_t own = space.works[w].plan->bytes();
      const double share = static_cast<double>(own) / static_cast<double>(bytes);
      space.kernels[w]->note_run(
          *space.programs[w], own,
          static_cast<std::int64_t>(static_cast<double>(nanoseconds) * share));
    }
  }

  std::unique_ptr<ProgramSet> set_;
};

struct RunTask {
  std::unique_ptr<Task> task;
  void operator()() { task->run(); }
  void accesses(AccessList& list) const { task->accesses(list); }
};

// What an operator that is recorded now has. Throws in a forked child: the parent's open program
// has no worker here, and locks may have been inherited as taken.
ProgramSet::Setting check_setting() {
  using loom::detail::ProcessState;
  const ProcessState state = loom::detail::process_state();
  if (state == ProcessState::kForked) [[unlikely]] {
    loom::detail::throw_forked();
  }
  return {state == ProcessState::kTraced, FloatMode::of_submission()};
}

/// What operators may be added to, or null: waits are open, too.
ProgramSet* set_of(OpenCommand* open) noexcept {
  return open != nullptr && typeid(*open) == typeid(ProgramSet) ? static_cast<ProgramSet*>(open)
                                                                : nullptr;
}

}  // namespace

bool enabled() noexcept { return t_enabled; }
void set_enabled(bool enabled) noexcept { t_enabled = enabled; }

bool record(Queue& queue, const Expression& expression) {
  // A trace has no record of what was submitted before it began, so nothing is added to that.
  const ProgramSet::Setting setting = check_setting();
  if (t_enabled) [[likely]] {
    const bool appended = queue.with_open([&](OpenCommand* open) {
      ProgramSet* const set = set_of(open);
      return set != nullptr && set->setting() == setting && set->append(expression);
    });
    if (appended) return true;
  }
  HeldMemory::make_room(queue);
  std::unique_ptr<ProgramSet> fresh = Pool::instance().take();
  fresh->reset(setting);
  ProgramSet& set = *fresh;
  if (!set.append(expression)) {
    Pool::instance().give_back(std::move(fresh));
    return false;
  }
  if (t_enabled) [[likely]] {
    queue.submit_open("fused", RunPrograms(std::move(fresh)), set);
  } else {
    set.close();
    queue.submit(expression.name(), RunPrograms(std::move(fresh)));
  }
  return true;
}

void submit_producer(Queue& queue, std::unique_ptr<Producer> producer) {
  const char* const name = producer->name();
  const ProgramSet::Setting setting = check_setting();
  std::unique_ptr<ProgramSet> fresh = Pool::instance().take();
  fresh->reset(setting, std::move(producer));
  ProgramSet& set = *fresh;
  if (t_enabled) [[likely]] {
    queue.submit_open(name, RunPrograms(std::move(fresh)), set);
  } else {
    set.close();
    queue.submit(name, RunPrograms(std::move(fresh)));
  }
}

void submit_ahead(Queue& queue, std::unique_ptr<Task> task) {
  const char* const name = task->name();
  const ProgramSet::Setting setting = check_setting();
  if (t_enabled) [[likely]] {
    const bool ahead = queue.with_open([&](OpenCommand* open) {
      ProgramSet* const set = set_of(open);
      return set != nullptr && set->setting() == setting && set->add_ahead(task);
    });
    if (ahead) return;
  }
  queue.submit(name, RunTask{std::move(task)});
}

}  // namespace loom::fusion
