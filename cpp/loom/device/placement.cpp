// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/placement.h"

#include "loom/base/futex.h"

#include <sched.h>
#include <thread>

namespace loom::detail {

void Placement::note_submitter() noexcept {
  if (on_) note(submitter_, ::sched_getcpu());
}

void Placement::note_host() noexcept {
  if (on_) note(host_, ::sched_getcpu());
}

void Placement::note_spin(std::int64_t start, std::int64_t end, std::int64_t limit_ns) noexcept {
  if (!on_) return;
  const bool calm = end - start < PlacementLimits::kCalmSpins * limit_ns;
  calm_.store(::sched_getcpu(), std::memory_order_relaxed);
  calm_ns_.store(calm ? end : 0, std::memory_order_relaxed);
}

bool Placement::in_the_way(int cpu) const noexcept { return on_ && cpu == ::sched_getcpu(); }

void Placement::favour_submitter() const noexcept {
  if (on_ && is(submitter_, ::sched_getcpu())) CoreOffers::forgive();
}

void Placement::favour_own() const noexcept {
  if (!on_) return;
  const int cpu = ::sched_getcpu();
  if (is(submitter_, cpu) || is(publisher_, cpu) || is(host_, cpu)) CoreOffers::forgive();
}

void Placement::leave_host(int hosts, std::int64_t* moved_ns) const noexcept {
  if (!on_ || hosts == 0) return;
  const int cpu = ::sched_getcpu();
  if (!is(host_, cpu)) return;
  const std::int64_t now = now_ns();
  const bool calm = now - calm_ns_.load(std::memory_order_relaxed) <= PlacementLimits::kCalmNs;
  const int other = calm_.load(std::memory_order_relaxed);
  if (!calm || other < 0 || other == cpu) return;
  if (now - *moved_ns < PlacementLimits::kMoveNs) return;
  *moved_ns = now;
  Processors processors;
  if (processors.move_to(other)) processors.restore();
}

bool Placement::behind_publisher(int hosts) const noexcept {
  if (!on_) return false;
  const int cpu = ::sched_getcpu();
  if (!is(publisher_, cpu)) return false;
  return hosts == 0 || is(host_, cpu);
}

void Placement::Helper::begin(bool published, bool host_waits) noexcept {
  published_ = published;
  host_waits_ = host_waits;
  if (processors_.restricted() && !host_waits) processors_.restore();
  if (published) rests_ = 0;
}

void Placement::Helper::found_nothing(int hosts) noexcept {
  if (published_ && host_waits_ && placement_.behind_publisher(hosts)) {
    (void)processors_.avoid(::sched_getcpu());
  }
}

void Placement::Helper::rest(int cpu) noexcept {
  ++rests_;
  // A host that waits needs no processor; otherwise the helper would be in its way elsewhere.
  if (!host_waits_ || !processors_.avoid(cpu)) std::this_thread::sleep_for(PlacementLimits::kRest);
}

}  // namespace loom::detail
