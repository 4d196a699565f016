// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/arena.h"

#include "loom/base/ceil_div.h"
#include "loom/base/check.h"
#include "loom/device/address.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <sys/mman.h>
#include <utility>

namespace loom {
namespace {

std::size_t whole_granules(std::size_t bytes) { return round_up(bytes, Arena::kGranularity); }

/// Makes the memory behind a device range accessible; false when the system refuses.
bool make_accessible(std::byte* range, std::size_t bytes) noexcept {
  void* const memory = host_address(range);
  if (::mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  // Advice: where huge pages are off, small ones do. Pages come from the node of the thread that
  // touches them first, which is one of the device's own.
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  return true;
}

/// Gives the pages back to the system and makes the range inaccessible again.
void make_inaccessible(std::byte* range, std::size_t bytes) noexcept {
  void* const memory = host_address(range);
  const void* const replaced = ::mmap(
      memory, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (replaced != MAP_FAILED) return keep_from_children(memory, bytes);
  // The process has too many mappings to split one more. The pages go back all the same.
  LOOM_ASSERT(::madvise(memory, bytes, MADV_DONTNEED) == 0,
              "the system does not take a segment back");
}

}  // namespace

Arena::Arena(int device, std::size_t limit)
    : limit_(limit / kGranularity * kGranularity),
      reserved_(2 * limit_),
      begin_(reserve_addresses(device, reserved_)) {
  MutexLock lock(mutex_);
  free_.emplace(begin_, reserved_);
}

Arena::~Arena() {
  make_inaccessible(begin_, reserved_);
  release_addresses(begin_, reserved_);
}

void* Arena::map_segment(std::size_t bytes) {
  if (bytes == 0 || bytes > limit_) return nullptr;
  bytes = whole_granules(bytes);
  MutexLock lock(mutex_);
  if (bytes > limit_ - mapped_) return nullptr;
  std::byte* segment = nullptr;
  try {
    segment = take_range(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;  // a system that has no memory for the entry has none for the segment
  }
  if (segment == nullptr) return nullptr;
  if (!make_accessible(segment, bytes)) {
    give_range(segment);
    return nullptr;
  }
  mapped_ += bytes;
  return segment;
}

void Arena::unmap_segment(void* segment, std::size_t bytes) noexcept {
  if (segment == nullptr || in_bad_fork()) return;  // a child has none
  bytes = whole_granules(bytes);
  auto* const begin = static_cast<std::byte*>(segment);
  MutexLock lock(mutex_);
  const auto used = used_.find(begin);
  LOOM_ASSERT(used != used_.end() && used->second == bytes,
              "a segment is unmapped that is not of this arena");
  make_inaccessible(begin, bytes);
  mapped_ -= bytes;
  give_range(begin);
}

// Best fit: the smallest range that is large enough, and of those the lowest.
std::byte* Arena::take_range(std::size_t bytes) {
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second < bytes) continue;
    if (best == free_.end() || range->second < best->second) best = range;
  }
  if (best == free_.end()) return nullptr;
  const auto [begin, size] = *best;
  if (size == bytes) {
    used_.insert(free_.extract(best));
    return begin;
  }
  used_.emplace(begin, bytes);
  auto rest = free_.extract(best);
  rest.key() = begin + bytes;
  rest.mapped() = size - bytes;
  free_.insert(std::move(rest));
  return begin;
}

void Arena::give_range(std::byte* begin) noexcept {
  auto range = used_.extract(begin);
  std::size_t& bytes = range.mapped();
  const auto after = free_.lower_bound(begin);
  const bool joins_after = after != free_.end() && begin + bytes == after->first;
  auto before = after == free_.begin() ? free_.end() : std::prev(after);
  const bool joins_before = before != free_.end() && before->first + before->second == begin;
  if (joins_after) bytes += after->second;
  if (joins_after) free_.erase(after);
  if (joins_before) {
    before->second += bytes;
  } else {
    free_.insert(std::move(range));
  }
}

std::size_t Arena::granularity() const noexcept { return kGranularity; }

std::size_t Arena::limit() const noexcept { return limit_; }

std::size_t Arena::mapped() const {
  MutexLock lock(mutex_);
  return mapped_;
}

}  // namespace loom
