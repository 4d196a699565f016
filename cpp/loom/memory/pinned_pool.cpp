// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/pinned_pool.h"

#include "loom/base/ceil_div.h"
#include "loom/base/check.h"
#include "loom/base/mutex.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <new>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace loom {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kMaxBytes = ~std::size_t{0} / 4;

struct Mapping {
  std::size_t bytes;
  bool locked;
};
using Mappings = std::map<const std::byte*, Mapping, std::less<>>;  // by start

/// All live mappings. Asked at every copy from or to the host, hence the shared lock and
/// the count, which spares processes that pin nothing even that.
struct Registry {
  SharedMutex mutex;
  Mappings mappings LOOM_GUARDED_BY(mutex);
  // Of `mappings`. Relaxed: who asks about a mapping was given its address after it was counted.
  std::atomic<std::size_t> count{0};
  // Bytes locked or about to be. Relaxed: a budget, it orders nothing.
  std::atomic<std::size_t> locked_bytes{0};
};

Registry& registry() {
  static auto* const instance = new Registry;  // leaked: host tensors may outlive everything
  return *instance;
}

// Made when the library is loaded: is_pinned() needs no memory.
[[maybe_unused]] const Registry* const g_pinned_made_early = &registry();

void* map_pages(std::size_t bytes) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

/// Maps more than asked and trims both ends, so that whole huge pages fit from the start.
void* map_huge(std::size_t bytes) {
  auto* const raw = static_cast<std::byte*>(map_pages(bytes + kHugePageBytes));
  if (raw == nullptr) return nullptr;
  const auto misalignment = reinterpret_cast<std::uintptr_t>(raw) % kHugePageBytes;
  const std::size_t head = misalignment == 0 ? 0 : kHugePageBytes - misalignment;
  if (head != 0) ::munmap(raw, head);
  ::munmap(raw + head + bytes, kHugePageBytes - head);
  ::madvise(raw + head, bytes, MADV_HUGEPAGE);  // advice: failure costs speed only
  return raw + head;
}

bool within_lock_limit(std::size_t locked, std::size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
  if (limit.rlim_cur == RLIM_INFINITY) return true;
  return locked <= limit.rlim_cur && bytes <= limit.rlim_cur - locked;
}

/// The limit is looked at first, as mlock() would fault in all it can before it fails.
bool lock_pages(Registry& known, void* address, std::size_t bytes) {
  // Relaxed, here and below: see the declaration.
  const std::size_t before = known.locked_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (within_lock_limit(before, bytes) && ::mlock(address, bytes) == 0) return true;
  known.locked_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

/// An entry that can be inserted without memory; empty when there is none.
Mappings::node_type make_entry() {
  try {
    Mappings entry;
    return entry.extract(entry.emplace(nullptr, Mapping{}).first);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace

void* map_pinned(std::size_t bytes) {
  check_not_forked();
  if (bytes == 0 || bytes > kMaxBytes) return nullptr;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  bytes = round_up(bytes, page);
  Registry& known = registry();
  Mappings::node_type entry = make_entry();  // before there is something to lose
  if (entry.empty()) return nullptr;
  void* const address = bytes >= kHugePageBytes ? map_huge(bytes) : map_pages(bytes);
  if (address == nullptr) return nullptr;

  entry.key() = static_cast<const std::byte*>(address);
  entry.mapped() = {bytes, lock_pages(known, address, bytes)};
  const ExclusiveLock lock(known.mutex);
  known.mappings.insert(std::move(entry));
  known.count.fetch_add(1, std::memory_order_relaxed);  // relaxed: see the declaration
  return address;
}

void unmap_pinned(void* address) noexcept {
  if (address == nullptr || in_bad_fork()) return;  // a child keeps it until it ends
  Registry& known = registry();
  const ExclusiveLock lock(known.mutex);
  const auto found = known.mappings.find(static_cast<const std::byte*>(address));
  LOOM_ASSERT(found != known.mappings.end(),
              "unmap_pinned: expected an address from map_pinned() that is not yet unmapped");
  const Mapping mapping = found->second;
  known.mappings.erase(found);
  known.count.fetch_sub(1, std::memory_order_relaxed);  // relaxed: see the declaration
  if (mapping.locked) {
    known.locked_bytes.fetch_sub(mapping.bytes, std::memory_order_relaxed);  // as lock_pages()
  }
  // Inside the lock, so that nobody else gets the address before it has left the registry.
  ::munmap(address, mapping.bytes);
}

bool is_pinned(const void* address) noexcept {
  Registry& known = registry();
  // Relaxed: see the declaration. A child inherits neither locked pages nor the workers.
  if (address == nullptr || known.count.load(std::memory_order_relaxed) == 0 || in_bad_fork()) {
    return false;
  }
  const SharedLock lock(known.mutex);
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto after = known.mappings.upper_bound(byte);
  if (after == known.mappings.begin()) return false;
  const auto& [start, mapping] = *std::prev(after);
  return byte < start + mapping.bytes;
}

}  // namespace loom
