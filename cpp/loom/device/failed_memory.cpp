// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/failed_memory.h"

#include "loom/base/mutex.h"
#include "loom/device/address.h"
#include "loom/device/queue.h"

#include <algorithm>
#include <map>
#include <new>

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
  // Once the host has dropped the memory, or given it to a new owner: the failure is for commands
  // of `queue` before the position `until`, and for those of other queues until that position has
  // come under a new owner. Commands of other queues that read the old values end before it: the
  // queue waits for them, or the memory gets no new owner. Those that read the new ones wait for
  // the queue. The queue is a device's, which lives as long as the process.
  const Queue* queue = nullptr;
  std::uint64_t until = 0;
  bool has_new_owner = false;

  void drop(const Queue& owner, std::uint64_t submitted, bool to_new_owner) noexcept {
    // What comes between the two is for the old values, too.
    if (queue == nullptr || (to_new_owner && !has_new_owner)) {
      queue = &owner;
      until = submitted + 1;
    }
    has_new_owner = has_new_owner || to_new_owner;
  }
  [[nodiscard]] bool concerns(const Reader& reader) const noexcept {
    if (queue == nullptr) return true;
    if (reader.queue == nullptr) return false;
    if (reader.queue == queue) return reader.position < until;
    return !has_new_owner || !queue->timeline().reached(until - 1);
  }
};

using Place = const std::byte*;

/// Marked ranges without overlaps, by their first byte.
/// Invariant: there is a range or a spare entry, so that mark_everything() needs no memory.
class Marks {
 public:
  Marks() : spare_(make_node()) {}

  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }

  /// Throws: std::bad_alloc, as all that changes a part of a range; then nothing is lost.
  void erase(Place begin, Place end) {
    split_at(begin);
    split_at(end);
    auto range = ranges_.lower_bound(begin);
    const auto last = ranges_.lower_bound(end);
    if (range != last && spare_.empty()) {
      spare_ = ranges_.extract(range++);
      spare_.mapped() = {};
    }
    ranges_.erase(range, last);
  }
  void assign(Place begin, Place end, Mark mark) {
    Node node = make_node();
    erase(begin, end);
    insert(std::move(node), begin, {end, std::move(mark)});
  }
  /// Marks all addresses that a program can have. Needs no memory.
  void assign_everywhere(Mark mark) noexcept {
    Node node = ranges_.empty() ? std::move(spare_) : ranges_.extract(ranges_.begin());
    ranges_.clear();
    insert(std::move(node), nullptr, {reinterpret_cast<Place>(PTRDIFF_MAX), std::move(mark)});
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

  using Ranges = std::map<Place, Range>;
  using Node = Ranges::node_type;

  static Node make_node() {
    Ranges one;
    return one.extract(one.emplace(nullptr, Range{}).first);
  }
  void insert(Node node, Place begin, Range range) noexcept {
    node.key() = begin;
    node.mapped() = std::move(range);
    ranges_.insert(std::move(node));
  }

  Ranges ranges_;
  Node spare_;
};

/// What HostVisible objects cover, by its first byte. They may overlap.
class VisibleRanges {
 public:
  void add(Place begin, Place end) { ranges_.emplace(begin, end); }
  void remove(Place begin, Place end) noexcept {
    auto [range, last] = ranges_.equal_range(begin);
    while (range != last && range->second != end) ++range;
    if (range != last) ranges_.erase(range);
  }
  [[nodiscard]] bool overlap(Place begin, Place end) const noexcept {
    const auto last = ranges_.lower_bound(end);
    return std::any_of(ranges_.begin(), last, [&](const auto& r) { return r.second > begin; });
  }
  /// Calls visit(begin, end) for the parts of the range that nothing covers.
  template <class Visit>
  void each_gap(Place begin, Place end, Visit&& visit) const {
    for (auto range = ranges_.begin(); range != ranges_.end() && range->first < end; ++range) {
      if (range->second <= begin) continue;
      if (range->first > begin) visit(begin, range->first);
      begin = range->second;
    }
    if (begin < end) visit(begin, end);
  }

 private:
  std::multimap<Place, Place> ranges_;
};

struct State {
  Mutex mutex;
  Marks marks LOOM_GUARDED_BY(mutex);
  VisibleRanges visible LOOM_GUARDED_BY(mutex);
};

State& state() {
  static auto* const instance = new State;  // leaked: workers ask until the process ends
  return *instance;
}

// Made when the library is loaded: mark_everything() is for when there is no memory.
[[maybe_unused]] const State* const g_made_early = &state();

bool is_free(const void* address) {
  const AllocationProbe probe = g_probe.load(std::memory_order_relaxed);
  return probe != nullptr && !probe(address);
}

// What the host has dropped when the command fails had its readers submitted before.
Mark make_mark(const Access& access, const FailurePtr& failure, const Queue& writer) {
  if (!is_free(access.address)) return {failure};
  return {failure, &writer, writer.submitted() + 1};
}

}  // namespace

void FailedMemory::note_dropped(const void* address, std::size_t bytes, const Queue& queue,
                                bool has_new_owner) {
  const auto* const begin = static_cast<const std::byte*>(address);
  // What has been submitted may still read the old values; an open command counts as submitted, and
  // may yet grow by operators on the new ones, which are then refused with it.
  const std::uint64_t submitted = queue.submitted();
  const bool passed = has_new_owner && queue.timeline().reached(submitted);
  State& all = state();
  MutexLock lock(all.mutex);
  if (passed) {
    all.marks.erase(begin, begin + bytes);
    note_cleared(all.marks.empty());
    return;
  }
  all.marks.change(begin, begin + bytes,
                   [&](Mark& mark) { mark.drop(queue, submitted, has_new_owner); });
}

bool FailedMemory::mark(const AccessList& accesses, const FailurePtr& failure,
                        const Queue& writer) {
  bool any_visible = false;
  for (const Access& access : accesses) {
    if (!access.writes() || access.bytes == 0) continue;
    const bool of_device = device_of_address(access.address) >= 0;
    const Mark mark = of_device ? make_mark(access, failure, writer) : Mark{failure};
    State& all = state();
    MutexLock lock(all.mutex);
    const bool visible = all.visible.overlap(begin_of(access), end_of(access));
    any_visible = any_visible || visible;
    if (!of_device && !visible) continue;
    all.marks.assign(begin_of(access), end_of(access), mark);
    any_.store(true, std::memory_order_relaxed);
  }
  return any_visible;
}

void FailedMemory::mark_everything(const FailurePtr& failure) noexcept {
  if (in_bad_fork()) return;
  State& all = state();
  MutexLock lock(all.mutex);
  all.marks.assign_everywhere({failure});
  any_.store(true, std::memory_order_relaxed);
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
  note_cleared(all.marks.empty());
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

void FailedMemory::note_unmapped(const void* device_address, std::size_t bytes) noexcept {
  if (!any() || in_bad_fork()) return;
  const auto* const begin = static_cast<const std::byte*>(device_address);
  State& all = state();
  MutexLock lock(all.mutex);
  try {
    all.marks.erase(begin, begin + bytes);
  } catch (const std::bad_alloc&) {
    return;  // marks that nobody looks at any more; whoever gets the addresses is told as usual
  }
  note_cleared(all.marks.empty());
}

void FailedMemory::set_allocation_probe(AllocationProbe probe) noexcept {
  g_probe.store(probe, std::memory_order_relaxed);
}

HostVisible::HostVisible(const void* address, std::size_t bytes)
    : begin_(static_cast<Place>(address)), end_(begin_ + bytes) {
  State& all = state();
  MutexLock lock(all.mutex);
  all.visible.add(begin_, end_);
}

HostVisible::~HostVisible() {
  if (in_bad_fork()) return;
  State& all = state();
  MutexLock lock(all.mutex);
  all.visible.remove(begin_, end_);
  if (device_of_address(begin_) >= 0 || all.marks.empty()) return;
  try {
    all.visible.each_gap(begin_, end_, [&](Place begin, Place end) LOOM_NO_THREAD_SAFETY_ANALYSIS {
      all.marks.erase(begin, end);
    });
  } catch (const std::bad_alloc&) {
    return;  // the rest counts as failed until a command writes it
  }
  FailedMemory::note_cleared(all.marks.empty());
}

}  // namespace loom
