// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/timeline.h"

#include "loom/base/futex.h"
#include "loom/base/options.h"
#include "loom/device/cores.h"
#include "loom/device/thread.h"
#include "loom/device/wait_graph.h"
#include "loom/device/wait_wrapper.h"

#include <optional>

namespace loom {
namespace {

// A statistic: nothing is ordered by it, so relaxed.
std::atomic<std::uint64_t> g_host_waits{0};

// Relaxed: set before the device is used.
std::atomic<WaitWrapper> g_wait_wrapper{nullptr};
std::atomic<SignalHandler> g_signal_handler{nullptr};

}  // namespace

void set_wait_wrapper(WaitWrapper wrapper) noexcept {
  g_wait_wrapper.store(wrapper, std::memory_order_relaxed);
}

void call_in_wait_wrapper(void (*body)(void*), void* context) {
  const WaitWrapper wrapper = g_wait_wrapper.load(std::memory_order_relaxed);
  wrapper != nullptr ? wrapper(body, context) : body(context);
}

void set_signal_handler(SignalHandler handler) noexcept {
  g_signal_handler.store(handler, std::memory_order_relaxed);
}

void handle_signals() {
  const SignalHandler handler = g_signal_handler.load(std::memory_order_relaxed);
  if (handler != nullptr) handler();
}

std::uint64_t Timeline::host_waits() noexcept {
  return g_host_waits.load(std::memory_order_relaxed);
}

void Timeline::wait(std::uint64_t position, Signals signals) const {
  lock_checks::may_wait("a timeline");
  if (reached(position)) return;
  check_not_forked();
  if (on_loom_thread()) return sleep_until(position, nullptr);
  g_host_waits.fetch_add(1, std::memory_order_relaxed);
  const SignalHandler handler =
      signals == Signals::kHandled ? g_signal_handler.load(std::memory_order_relaxed) : nullptr;
  struct Wait {
    const Timeline* timeline;
    std::uint64_t position;
    std::int64_t deadline_ns;
  } wait{this, position, kForEver};
  const auto body = [](void* context) {
    const Wait& each = *static_cast<const Wait*>(context);
    each.timeline->sleep_until(each.position, nullptr, each.deadline_ns);
  };
  for (;;) {
    if (handler != nullptr) wait.deadline_ns = now_ns() + kSignalPeriodNs;
    call_in_wait_wrapper(body, &wait);
    if (handler == nullptr || reached(position) || exiting()) return;
    handler();
  }
}

void Timeline::wait_unless(std::uint64_t position, const std::atomic<bool>& stop) const {
  lock_checks::may_wait("a timeline");
  if (reached(position)) return;
  sleep_until(position, &stop);
}

void Timeline::sleep_until(std::uint64_t position, const std::atomic<bool>* stop,
                           std::int64_t deadline_ns) const {
  lock_checks::waits("a timeline");
  wait_graph::waits(*this, position);
  // A clock is dear beside the other reasons, and a thread that helps looks between two blocks.
  constexpr unsigned kLooksPerClock = 64;
  unsigned looks = 0;
  const auto late = [&] {
    return deadline_ns != kForEver && ++looks % kLooksPerClock == 0 && now_ns() >= deadline_ns;
  };
  const auto finished = [&] {
    // `stop` is looked at after generation_ was read; interrupt() changes generation_ after `stop`
    // was set. Acquire and release of generation_ order the two; relaxed is enough here.
    return reached(position) || exiting() ||
           (stop != nullptr && stop->load(std::memory_order_relaxed)) || late();
  };
  const bool helps = cores_ != nullptr && !on_loom_thread();
  std::optional<Cores::HostWait> waits;
  if (helps) waits.emplace(*cores_);
  const std::int64_t spin_ns = options().spin_ns;
  if (helps ? cores_->help_until(finished, spin_ns) : spin_until(finished, spin_ns)) return;
  // No wake is missed. The waiter writes wake_at_, then reads completed_; advance() writes
  // completed_, then reads wake_at_; all four are sequentially consistent, so at least one sees the
  // other's write. If the waiter sees it, it does not sleep. If advance() sees it, it changes
  // generation_, after this waiter has read it, and so the futex does not sleep or is woken. An
  // earlier advance() that took this waiter's wake_at_ away has changed generation_ as well.
  for (;;) {
    const std::uint32_t generation = generation_.load(std::memory_order_acquire);
    // What is done is not registered: the next advance() would wake whoever sleeps then.
    if (finished()) return;
    std::uint64_t lowest = wake_at_.load(std::memory_order_seq_cst);
    while (position < lowest &&
           !wake_at_.compare_exchange_weak(lowest, position, std::memory_order_seq_cst)) {
    }
    if (completed_.load(std::memory_order_seq_cst) >= position || finished()) return;
    if (deadline_ns == kForEver) {
      futex_wait(generation_, generation);
      continue;
    }
    const std::int64_t left_ns = deadline_ns - now_ns();
    if (left_ns <= 0) return;
    futex_wait_for(generation_, generation, left_ns);
  }
}

void Timeline::advance(std::uint64_t position) noexcept {
  completed_.store(position, std::memory_order_seq_cst);
  if (wake_at_.load(std::memory_order_seq_cst) > position) return;
  // Everybody is woken; who wants more registers again.
  wake_at_.exchange(kNobody, std::memory_order_seq_cst);
  interrupt();
}

void Timeline::interrupt() const noexcept {
  generation_.fetch_add(1, std::memory_order_release);
  futex_wake(generation_);
}

}  // namespace loom
