// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/cores.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/base/mutex.h"
#include "loom/base/options.h"
#include "loom/device/core_limit.h"
#include "loom/device/grid_slot.h"
#include "loom/device/placement.h"
#include "loom/device/scratch.h"
#include "loom/device/thread.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <exception>
#include <new>
#include <sched.h>
#include <system_error>
#include <thread>
#include <utility>

namespace loom {
namespace {

using detail::Slot;
using detail::t_inside_block;

// Helpers give up spinning sooner than workers: on a small host they take the core that submits.
constexpr std::int64_t kMaxHelperSpinNs = 10'000;
// How long a host looks for blocks, in units of its limit: at first, as the worker may have to be
// scheduled, and once it has run some. A host that went to sleep between two grids would leave its
// processor to nobody, since the system is slow to move a helper there that was woken elsewhere.
constexpr std::int64_t kHostPatience = 4, kHelpingHostPatience = 20;
// Each thread that is woken wakes more in turn, so that publishing stays cheap.
constexpr int kWakesAtOnce = 2;

}  // namespace

struct Cores::State {
  enum class Found { kNothing, kClosed, kBlocks, kOccupied };

  static constexpr int kSlots = 64;

  std::array<Slot, kSlots> slots;
  // Bit i: slot i is free. Acquire when taken, release when given back: slots change owners.
  alignas(64) std::atomic<std::uint64_t> free{~std::uint64_t{0}};
  // Bit i: slot i may have unclaimed blocks. A hint, `entered` decides: relaxed, but set before
  // `signal` changes (release), so that who has seen the new signal sees the bit.
  alignas(64) std::atomic<std::uint64_t> open{0};
  // Changes with every grid and at the end: idle helpers watch it and sleep on it.
  std::atomic<std::uint32_t> signal{0};
  std::atomic<int> sleepers{0};
  std::atomic<int> spinners{0};
  std::atomic<int> hosts{0};    // that wait and look for blocks; a hint like `spinners`
  std::atomic<int> waiting{0};  // all hosts that wait; another hint
  detail::Placement placement{options().placement};
  alignas(64) std::atomic<bool> stop{false};
  std::int64_t worker_spin_ns = 0;
  std::int64_t helper_spin_ns = 0;
  int cores = 1;    // what shares are made for; never changes
  int helpers = 0;  // less when the system gives no more threads

  // Acquire / release: who sees it set does without the mutex.
  std::atomic<bool> started{false};
  Mutex start_mutex;
  std::vector<std::unique_ptr<LoomThread>> threads LOOM_GUARDED_BY(start_mutex);

  void start(const std::vector<int>& cpus, int device);
  int take_slot() noexcept;
  void publish(int index, std::int64_t blocks, BlockFunction function, void* context, int priority,
               RunBy by);
  void wake(std::int64_t useful) noexcept;
  void stop_helpers() noexcept;
  void help(int rank);
  Found help_once(int rank, std::uint32_t seen, bool may_rest, int* occupied) noexcept;
  template <class Enough>
  Found help_as_host(std::uint32_t seen, Enough enough);
  template <class Enough>
  bool run_blocks(int index, int rank, std::uint32_t seen, Enough enough);
  int best_open_slot(RunBy by) const noexcept;
  bool wants_processor() noexcept;
  void idle(std::uint32_t seen) noexcept;
};

void Cores::State::start(const std::vector<int>& cpus, int device) {
  MutexLock lock(start_mutex);
  if (started.load(std::memory_order_relaxed)) return;
  try {
    threads.reserve(static_cast<std::size_t>(helpers));
    for (int i = static_cast<int>(threads.size()); i < helpers; ++i) {
      threads.push_back(std::make_unique<LoomThread>(
          detail::concat("loom", device, "/c", i + 1), cpus,
          [this, i, device] {
            set_scratch_device(device);
            help(i + 1);
          },
          [this] { stop_helpers(); }));
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are, and the publishers, do the work.
    helpers = static_cast<int>(threads.size());
  } catch (const std::bad_alloc&) {
    return;  // the next grid starts those that lack
  }
  started.store(true, std::memory_order_release);
}

int Cores::State::take_slot() noexcept {
  std::uint64_t mask = free.load(std::memory_order_relaxed);
  while (mask != 0) {
    const std::uint64_t rest = mask & (mask - 1);
    if (free.compare_exchange_weak(mask, rest, std::memory_order_acquire,
                                   std::memory_order_relaxed)) {
      return std::countr_zero(mask ^ rest);
    }
  }
  return -1;
}

void Cores::State::publish(int index, std::int64_t blocks, BlockFunction function, void* context,
                           int priority, RunBy by) {
  Slot& slot = slots[static_cast<std::size_t>(index)];
  slot.function = function;
  slot.context = context;
  slot.failed.store(false, std::memory_order_relaxed);
  slot.divide(blocks, cores);
  slot.priority.store(priority, std::memory_order_relaxed);
  slot.by_any.store(by == RunBy::kAny, std::memory_order_relaxed);
  const bool for_all = blocks >= cores;
  slot.for_all.store(for_all, std::memory_order_relaxed);
  const int cpu = ::sched_getcpu();
  slot.cpu.store(cpu, std::memory_order_relaxed);
  placement.note_publisher(cpu);
  slot.float_mode = FloatMode::current();
  const int seats = core_limit() - 1;
  slot.seats.store(static_cast<std::uint32_t>(seats), std::memory_order_relaxed);
  slot.entered.fetch_and(~Slot::kClosed, std::memory_order_release);
  open.fetch_or(std::uint64_t{1} << index, std::memory_order_relaxed);
  // No wake is missed: a helper counts itself in `sleepers`, then the kernel compares `signal`;
  // here `signal` changes, then `sleepers` is read; both sides are sequentially consistent.
  signal.fetch_add(1, std::memory_order_seq_cst);
  std::int64_t useful = std::min<std::int64_t>({blocks - 1, helpers, seats});
  // A host that is looking runs blocks itself, or wakes a helper in its place; if it has just
  // stopped looking, the publisher is alone with this grid.
  if (by == RunBy::kAny || for_all) {
    const bool beside = placement.host_on(cpu);
    useful -= std::max(hosts.load(std::memory_order_relaxed) - static_cast<int>(beside), 0);
  }
  wake(useful);
}

void Cores::State::wake(std::int64_t useful) noexcept {
  const int asleep = sleepers.load(std::memory_order_seq_cst);
  if (asleep == 0 || useful <= 0) return;
  // A helper counted as spinning looks at `signal` once more before it sleeps. Relaxed: a wake too
  // many or too few is made good by the helpers, which wake each other while there is work.
  useful -= spinners.load(std::memory_order_relaxed);
  if (useful > 0)
    futex_wake(signal, static_cast<int>(std::min<std::int64_t>(useful, kWakesAtOnce)));
}

void Cores::State::stop_helpers() noexcept {
  stop.store(true, std::memory_order_relaxed);
  // Release: who sees the new signal sees `stop`.
  signal.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(signal);
}

void Cores::State::help(int rank) {
  detail::Placement::Helper place(placement);
  std::uint32_t before = 0;
  for (;;) {
    const std::uint32_t seen = signal.load(std::memory_order_acquire);
    if (stop.load(std::memory_order_relaxed)) return;
    place.begin(seen != std::exchange(before, seen), waiting.load(std::memory_order_relaxed) > 0);
    int cpu = -1;
    const Found found = help_once(rank, seen, place.may_rest(), &cpu);
    if (found == Found::kOccupied) place.rest(cpu);
    if (found == Found::kNothing) {
      place.found_nothing(hosts.load(std::memory_order_relaxed));
      idle(seen);
    }
  }
}

int Cores::State::best_open_slot(RunBy by) const noexcept {
  int best = -1;
  int best_priority = 0;
  for (std::uint64_t mask = open.load(std::memory_order_relaxed); mask != 0; mask &= mask - 1) {
    const int index = std::countr_zero(mask);
    const Slot& slot = slots[static_cast<std::size_t>(index)];
    if (by == RunBy::kAny && !slot.by_any.load(std::memory_order_relaxed)) continue;
    if (slot.full()) continue;
    const int priority = slot.priority.load(std::memory_order_relaxed);
    if (best < 0 || priority < best_priority) {
      best = index;
      best_priority = priority;
    }
  }
  return best;
}

// Whether a host that can only look on keeps a helper from a grid that all cores should be at.
bool Cores::State::wants_processor() noexcept {
  for (std::uint64_t mask = open.load(std::memory_order_relaxed); mask != 0; mask &= mask - 1) {
    Slot& slot = slots[static_cast<std::size_t>(std::countr_zero(mask))];
    if (!slot.for_all.load(std::memory_order_relaxed) || !slot.enter()) continue;
    const bool wants = !slot.by_any.load(std::memory_order_relaxed) && slot.unclaimed() > 0;
    slot.leave();
    if (wants) return true;
  }
  return false;
}

// Runs blocks of the most urgent grid, until it has no more or another grid is published. On the
// publisher's own processor a helper would only take time from it, and the system leaves two
// threads there for milliseconds when another one has become idle; asleep it is put elsewhere.
Cores::State::Found Cores::State::help_once(int rank, std::uint32_t seen, bool may_rest,
                                            int* occupied) noexcept {
  const int index = best_open_slot(RunBy::kDevice);
  if (index < 0) return Found::kNothing;
  Slot& slot = slots[static_cast<std::size_t>(index)];
  *occupied = slot.cpu.load(std::memory_order_relaxed);
  if (may_rest && placement.in_the_way(*occupied)) return Found::kOccupied;
  if (!slot.enter()) return Found::kClosed;
  wake(slot.unclaimed() - 1);
  {
    const FloatModeGuard mode(slot.float_mode);
    run_blocks(index, rank, seen, [] { return false; });
  }
  slot.leave();
  return Found::kBlocks;
}

// The same on a thread of the host, with the publisher's floating-point mode.
template <class Enough>
Cores::State::Found Cores::State::help_as_host(std::uint32_t seen, Enough enough) {
  const int index = best_open_slot(RunBy::kAny);
  if (index < 0) return Found::kNothing;
  Slot& slot = slots[static_cast<std::size_t>(index)];
  // Helpers that sleep or that are at this grid do without this thread. If there are none, the
  // publisher may be asleep in its block.
  const bool others = sleepers.load(std::memory_order_relaxed) > 0 || slot.has_helpers();
  if (others && placement.in_the_way(slot.cpu.load(std::memory_order_relaxed))) {
    return Found::kOccupied;
  }
  if (!slot.enter()) return Found::kClosed;
  Found found = Found::kClosed;
  if (slot.by_any.load(std::memory_order_relaxed)) {
    const FloatModeGuard mode(slot.float_mode);
    if (run_blocks(index, cores - 1, seen, enough)) found = Found::kBlocks;
  }
  slot.leave();
  return found;
}

// Returns whether there was one. Between two of them it looks whether that is enough.
template <class Enough>
bool Cores::State::run_blocks(int index, int rank, std::uint32_t seen, Enough enough) {
  Slot& slot = slots[static_cast<std::size_t>(index)];
  int share = slot.home(rank, cores);
  std::int64_t block = 0;
  for (bool ran = false;; ran = true) {
    if (!slot.claim(&share, &block)) {
      open.fetch_and(~(std::uint64_t{1} << index), std::memory_order_relaxed);
      return ran;
    }
    slot.run_block(block);
    if (enough() || signal.load(std::memory_order_relaxed) != seen) return true;
  }
}

void Cores::State::idle(std::uint32_t seen) noexcept {
  spinners.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t start = now_ns();
  placement.favour_own();
  const bool changed =
      spin_until([&] { return signal.load(std::memory_order_relaxed) != seen; }, helper_spin_ns);
  if (!changed) {
    // It yields after some microseconds: to another thread's time slice, if there is one.
    placement.note_spin(start, now_ns(), helper_spin_ns);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
  }
  spinners.fetch_sub(1, std::memory_order_relaxed);
  if (changed) return;
  let_go_of_scratch();
  futex_wait(signal, seen);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

Cores::Cores(int count, std::vector<int> cpus, int device)
    : count_(count), cpus_(std::move(cpus)), device_(device), state_(std::make_unique<State>()) {
  LOOM_CHECK(count >= 1, "Cores(): expected at least one core, got ", count);
  state_->cores = count;
  state_->helpers = count - 1;
  state_->worker_spin_ns = options().spin_ns;
  state_->helper_spin_ns = std::min(options().spin_ns, kMaxHelperSpinNs);
}

Cores::~Cores() {
  if (in_bad_fork()) {
    // The helpers do not exist here; what they were started with is left to the process's end.
    static_cast<void>(state_.release());
    return;
  }
  std::vector<std::unique_ptr<LoomThread>> threads;
  {
    MutexLock lock(state_->start_mutex);
    threads.swap(state_->threads);
  }
  threads.clear();  // joins
}

void Cores::run_erased(std::int64_t blocks, BlockFunction function, void* context, int priority,
                       RunBy by) {
  const bool alone = blocks <= 1 || count_ == 1 || core_limit() == 1 || t_inside_block;
  int index = -1;
  if (!alone) {
    if (!state_->started.load(std::memory_order_acquire)) state_->start(cpus_, device_);
    index = state_->take_slot();
  }
  // With all slots taken there are more grids than cores by far: nobody would come to help.
  if (index < 0) {
    for (std::int64_t block = 0; block < blocks; ++block) function(context, block);
    return;
  }
  State& state = *state_;
  Slot& slot = state.slots[static_cast<std::size_t>(index)];
  const std::uint64_t bit = std::uint64_t{1} << index;
  state.publish(index, blocks, function, context, priority, by);
  int share = 0;
  std::int64_t block = 0;
  while (slot.claim(&share, &block)) slot.run_block(block);
  state.open.fetch_and(~bit, std::memory_order_relaxed);
  slot.close_and_wait(state.worker_spin_ns);
  std::exception_ptr error = std::exchange(slot.error, nullptr);
  state.free.fetch_or(bit, std::memory_order_release);
  if (error != nullptr) std::rethrow_exception(std::move(error));
}

Cores::HostWait::HostWait(Cores& cores) noexcept : cores_(cores) {
  cores_.state_->waiting.fetch_add(1, std::memory_order_relaxed);
}
Cores::HostWait::~HostWait() { cores_.state_->waiting.fetch_sub(1, std::memory_order_relaxed); }

void Cores::note_submitter() noexcept { state_->placement.note_submitter(); }

void Cores::favour_submitter() const noexcept { state_->placement.favour_submitter(); }

void Cores::leave_host(std::int64_t* moved_ns) const noexcept {
  state_->placement.leave_host(state_->hosts.load(std::memory_order_relaxed), moved_ns);
}

bool Cores::help_until_erased(DoneFunction done, const void* context, std::int64_t limit_ns) {
  State& state = *state_;
  const auto is_done = [&] { return done(context); };
  // Destructors of thread-local and of static objects may still wait, but not run blocks. This note
  // is the oldest: blocks that make thread-local objects of their own leave one that dies earlier.
  thread_local const detail::LeavingNote note;
  if (count_ == 1 || limit_ns <= 0 || detail::thread_is_leaving()) {
    return spin_until(is_done, limit_ns);
  }
  if (is_done()) return true;
  set_scratch_device(device_);
  // Relaxed, as `spinners`: a grid that finds no helper awake is run by its publisher alone.
  state.hosts.fetch_add(1, std::memory_order_relaxed);
  bool result = false;
  // Only blocks that it has run keep the host from its sleep: other grids are not its business.
  for (std::int64_t deadline = now_ns() + kHostPatience * limit_ns; !result;) {
    const std::uint32_t seen = state.signal.load(std::memory_order_acquire);
    const State::Found found = state.help_as_host(seen, is_done);
    if (found == State::Found::kBlocks) {
      deadline = now_ns() + kHelpingHostPatience * limit_ns;
      state.placement.note_host();
    }
    if (found == State::Found::kOccupied) break;
    if (found != State::Found::kNothing) {
      result = is_done();
      if (!result && now_ns() > deadline) break;
      continue;
    }
    if (state.wants_processor()) break;
    const auto changed = [&] {
      state.placement.note_host();
      result = is_done();
      return result || state.signal.load(std::memory_order_relaxed) != seen;
    };
    // Where others want its processor it does not stay for its patience: the publisher may be
    // behind it in the line. (Beside a busy process on one of two processors, one wait in a hundred
    // took 130 us when it did, and takes 17.)
    if (!spin_until(changed, deadline - now_ns(), limit_ns / kSpinHaste)) break;
    if (!result && now_ns() > deadline) break;
  }
  let_go_of_scratch();
  state.hosts.fetch_sub(1, std::memory_order_relaxed);
  // A grid that counted on this thread has others to help it.
  if (state.best_open_slot(RunBy::kDevice) >= 0) state.wake(1);
  return result;
}

}  // namespace loom
