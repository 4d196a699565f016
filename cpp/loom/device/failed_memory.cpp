// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/failed_memory.h"

#include "loom/base/mutex.h"
#include "loom/device/address.h"
#include "loom/device/queue.h"

#include <algorithm>
#include <map>

namespace loom {

std::atomic<bool> FailedMemory::any_{false};

namespace {

using Reader = FailedMemory::Reader;

// Relaxed: set before the device is used.
std::atomic<AllocationProbe> g_probe{nullptr};

const std::byte* begin_of(const Access& access) {
  return static_cast<const std::byte*>(access.address);
}
const std::byte* end_of(const Access& access) { return begin_of(access) + access.bytes; }

/// For whom a place counts as failed.
struct Mark {
  FailurePtr failure;
  // Once the host has dropped the memory: for commands of `queue` before the position `until`, and
  // for those of other queues until it has a new owner.
  const Queue* queue = nullptr;
  std::uint64_t until = 0;
  bool has_new_owner = false;

  [[nodiscard]] bool concerns(const Reader& reader) const noexcept {
    if (queue == nullptr) return true;
    if (reader.queue == nullptr) return false;
    return reader.queue == queue ? reader.position < until : !has_new_owner;
  }
};

/// Marked ranges without overlaps, by their first byte.
class Marks {
 public:
  using Place = const std::byte*;

  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }

  void erase(Place begin, Place end) {
    split_at(begin);
    split_at(end);
    ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
  }
  void assign(Place begin, Place end, Mark mark) {
    erase(begin, end);
    ranges_.emplace(begin, Range{end, std::move(mark)});
  }
  /// Calls visit(mark) for each range in [begin, end), cut there.
  template <class Visit>
  void change(Place begin, Place end, Visit&& visit) {
    split_at(begin);
    split_at(end);
    for (auto range = ranges_.lower_bound(begin); range != ranges_.lower_bound(end); ++range) {
      visit(range->second.mark);
    }
  }
  [[nodiscard]] FailurePtr find(Place begin, Place end, const Reader& reader) const {
    auto range = ranges_.upper_bound(begin);
    if (range != ranges_.begin()) --range;
    for (; range != ranges_.end() && range->first < end; ++range) {
      if (range->second.end > begin && range->second.mark.concerns(reader)) {
        return range->second.mark.failure;
      }
    }
    return nullptr;
  }

 private:
  struct Range {
    Place end;
    Mark mark;
  };

  void split_at(Place place) {
    auto range = ranges_.upper_bound(place);
    if (range == ranges_.begin()) return;
    --range;
    if (range->first == place || range->second.end <= place) return;
    ranges_.emplace(place, Range{range->second.end, range->second.mark});
    range->second.end = place;
  }

  std::map<Place, Range> ranges_;
};

struct State {
  Mutex mutex;
  Marks marks LOOM_GUARDED_BY(mutex);
};

State& state() {
  static auto* const instance = new State;  // leaked: workers ask until the process ends
  return *instance;
}

bool is_free(const void* address) {
  const AllocationProbe probe = g_probe.load(std::memory_order_relaxed);
  return probe != nullptr && !probe(address);
}

// What the host has dropped when the command fails had its readers submitted before.
Mark make_mark(const Access& access, const FailurePtr& failure, const Queue& writer) {
  if (!is_free(access.address)) return {failure};
  return {failure, &writer, writer.submitted() + 1};
}

void note_dropped(const void* address, std::size_t bytes, const Queue& queue, bool has_new_owner) {
  const auto* const begin = static_cast<const std::byte*>(address);
  // What has been submitted may still read the old values; an open command counts as submitted, and
  // may yet grow by operators on the new ones, which are then refused with it.
  const std::uint64_t submitted = queue.submitted();
  const bool passed = has_new_owner && queue.timeline().reached(submitted);
  State& all = state();
  MutexLock lock(all.mutex);
  if (passed) {
    all.marks.erase(begin, begin + bytes);
    return;
  }
  all.marks.change(begin, begin + bytes, [&](Mark& mark) {
    if (mark.queue == nullptr) {
      mark.queue = &queue;
      mark.until = submitted + 1;
    }
    mark.has_new_owner = mark.has_new_owner || has_new_owner;
  });
}

}  // namespace

void FailedMemory::mark(const AccessList& accesses, const FailurePtr& failure,
                        const Queue& writer) {
  for (const Access& access : accesses) {
    if (!access.writes() || access.bytes == 0 || device_of_address(access.address) < 0) continue;
    const Mark mark = make_mark(access, failure, writer);
    State& all = state();
    MutexLock lock(all.mutex);
    all.marks.assign(begin_of(access), end_of(access), mark);
    any_.store(true, std::memory_order_relaxed);
  }
}

FailurePtr FailedMemory::find(const AccessList& accesses, const Reader& reader) {
  State& all = state();
  MutexLock lock(all.mutex);
  for (const Access& access : accesses) {
    if (!access.reads()) continue;
    if (FailurePtr found = all.marks.find(begin_of(access), end_of(access), reader)) return found;
  }
  return nullptr;
}

void FailedMemory::clear(const AccessList& accesses) {
  State& all = state();
  MutexLock lock(all.mutex);
  for (const Access& access : accesses) {
    if (access.kind == AccessKind::kReplace) all.marks.erase(begin_of(access), end_of(access));
  }
  if (all.marks.empty()) any_.store(false, std::memory_order_relaxed);
}

void FailedMemory::check_marks(const void* device_address, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(device_address);
  FailurePtr found;
  {
    State& all = state();
    MutexLock lock(all.mutex);
    found = all.marks.find(begin, begin + bytes, Reader{});
  }
  if (found != nullptr) found->raise();
}

void FailedMemory::note_allocated(const void* device_address, std::size_t bytes,
                                  const Queue& queue) {
  note_dropped(device_address, bytes, queue, true);
}

void FailedMemory::note_freed(const void* device_address, std::size_t bytes, const Queue& queue) {
  note_dropped(device_address, bytes, queue, false);
}

void FailedMemory::set_allocation_probe(AllocationProbe probe) noexcept {
  g_probe.store(probe, std::memory_order_relaxed);
}

}  // namespace loom
