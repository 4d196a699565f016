// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/address.h"

#include "loom/base/ceil_div.h"
#include "loom/base/check.h"
#include "loom/base/mutex.h"
#include "loom/base/options.h"
#include "loom/device/fault.h"
#include "loom/device/properties.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <pthread.h>
#include <sys/mman.h>

namespace loom {

std::atomic<std::ptrdiff_t> detail::g_shadow_offset{0};

namespace {

// The reservation is dealt out in cells, so that the device of an address is one look in a table.
constexpr std::size_t kCellBytes = std::size_t{1} << 30;
// It begins at a huge page: some systems align large mappings by themselves, others do not.
constexpr std::size_t kAlignment = std::size_t{2} << 20;
// Beyond what the devices need: for arenas that programs make themselves.
constexpr std::size_t kSpareCells = 64;
constexpr signed char kFree = -1;

using Owner = std::atomic<signed char>;

/// The reservation, made once and never given back. `owners[i]` is the device of cell i.
/// Invariant: begin is null, or [begin, begin + cells * kCellBytes) is reserved, and in isolated
/// mode the same again above it.
struct Reservation {
  Mutex mutex;
  // All that is mapped. Published as `begin` is.
  void* mapped = nullptr;
  std::size_t mapped_bytes = 0;
  // The three are published by the release store of `begin`. Readers of owners[] (also in signal
  // handlers) only look at cells of addresses that they got from their owner: relaxed.
  std::atomic<std::byte*> begin{nullptr};
  std::size_t cells = 0;
  std::unique_ptr<Owner[]> owners;
};

// Leaked: addresses are looked up until the process ends.
Reservation& reservation() {
  static auto* const instance = new Reservation;
  return *instance;
}

// For device_of_address(), which must not construct anything.
std::atomic<const Reservation*> g_reservation{nullptr};

std::size_t cells_for(std::size_t bytes) { return ceil_div(bytes, kCellBytes); }

std::size_t cells_for_all_devices(const Options& from) {
  std::size_t cells = kSpareCells;
  for (const DeviceProperties& device :
       enumerate_devices(from.devices, from.threads, from.memory_limit)) {
    cells += cells_for(2 * device.total_memory);
  }
  return cells;
}

void* map_inaccessible(void* where, std::size_t bytes, int flags) noexcept {
  return ::mmap(where, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1,
                0);
}

/// Takes what nobody else has, in parts where somebody has some: handlers of other libraries may
/// have run in the child before, and mapped memory or started threads.
void reserve_the_rest(std::byte* where, std::size_t bytes) noexcept {
  void* const mapped = map_inaccessible(where, bytes, MAP_FIXED_NOREPLACE);
  if (mapped == where) return;
  if (mapped != MAP_FAILED) {
    ::munmap(mapped, bytes);  // a system that takes the address for a wish
  } else if (errno != EEXIST) {
    return;  // it has no room
  }
  if (bytes <= kAlignment) return;
  const std::size_t half = round_up(bytes / 2, kAlignment);
  reserve_the_rest(where, half);
  reserve_the_rest(where + half, bytes - half);
}

// In the child, which has nothing at these addresses: they stay taken, so that whoever kept one
// gets a fault that says what it is, and not the memory of somebody else.
void reserve_in_child() noexcept {
  const Reservation* const all = g_reservation.load(std::memory_order_acquire);
  if (all == nullptr) return;
  reserve_the_rest(static_cast<std::byte*>(all->mapped), all->mapped_bytes);
  note_forked_child_to_fault_handler();
}

void make_reservation(Reservation& all) LOOM_REQUIRES(all.mutex) {
  const Options& from = options();
  const bool isolated = from.memory == MemoryMode::kIsolated;
  const std::size_t cells = cells_for_all_devices(from);
  const std::size_t bytes = cells * kCellBytes;
  all.mapped_bytes = (isolated ? 2 * bytes : bytes) + kAlignment;
  void* const mapped = map_inaccessible(nullptr, all.mapped_bytes, 0);
  LOOM_CHECK(mapped != MAP_FAILED, "device(): expected ", isolated ? 2 * cells : cells,
             " GiB of address space to reserve, got '", std::strerror(errno),
             "'; raise `ulimit -v` or lower LOOM_MEMORY_LIMIT");
  all.mapped = mapped;
  keep_from_children(mapped, all.mapped_bytes);
  static const bool armed = pthread_atfork(nullptr, nullptr, reserve_in_child) == 0;
  LOOM_CHECK(armed, "device(): expected room for a fork handler, got none");
  all.owners = std::make_unique<Owner[]>(cells);
  for (std::size_t i = 0; i < cells; ++i) all.owners[i].store(kFree, std::memory_order_relaxed);
  all.cells = cells;
  if (isolated) {
    detail::g_shadow_offset.store(static_cast<std::ptrdiff_t>(bytes), std::memory_order_relaxed);
    install_fault_handler();
  }
  const std::size_t past = reinterpret_cast<std::uintptr_t>(mapped) % kAlignment;
  all.begin.store(static_cast<std::byte*>(mapped) + (kAlignment - past) % kAlignment,
                  std::memory_order_relaxed);
  g_reservation.store(&all, std::memory_order_release);
}

/// The first of `count` neighbouring free cells, or all.cells.
std::size_t find_free(const Reservation& all, std::size_t count) LOOM_REQUIRES(all.mutex) {
  std::size_t run = 0;
  for (std::size_t i = 0; i < all.cells; ++i) {
    run = all.owners[i].load(std::memory_order_relaxed) == kFree ? run + 1 : 0;
    if (run == count) return i + 1 - count;
  }
  return all.cells;
}

void set_owner(Reservation& all, std::size_t first, std::size_t count, signed char owner)
    LOOM_REQUIRES(all.mutex) {
  for (std::size_t i = first; i < first + count; ++i) {
    all.owners[i].store(owner, std::memory_order_relaxed);
  }
}

}  // namespace

int device_of_address(const void* device_address) noexcept {
  const Reservation* const all = g_reservation.load(std::memory_order_acquire);
  if (all == nullptr) return -1;
  // Addresses below wrap around to far above.
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(device_address) -
      reinterpret_cast<std::uintptr_t>(all->begin.load(std::memory_order_relaxed));
  const std::size_t cell = offset / kCellBytes;
  return cell < all->cells ? all->owners[cell].load(std::memory_order_relaxed) : -1;
}

std::byte* reserve_addresses(int device, std::size_t bytes) {
  LOOM_CHECK(device >= 0 && device <= 127, "reserve_addresses(): expected a device index, got ",
             device);
  Reservation& all = reservation();
  MutexLock lock(all.mutex);
  if (all.begin.load(std::memory_order_relaxed) == nullptr) make_reservation(all);
  const std::size_t count = cells_for(bytes);
  const std::size_t first = find_free(all, count);
  LOOM_CHECK(count > 0 && first < all.cells, "reserve_addresses(): expected at most ", all.cells,
             " GiB in all arenas together, got another ", count, " GiB");
  set_owner(all, first, count, static_cast<signed char>(device));
  return all.begin.load(std::memory_order_relaxed) + first * kCellBytes;
}

void keep_from_children(void* memory, std::size_t bytes) noexcept {
  // Where the system does not know it, a fork copies what either process writes then.
  (void)::madvise(memory, bytes, MADV_DONTFORK);
}

void release_addresses(std::byte* begin, std::size_t bytes) noexcept {
  if (in_bad_fork()) return;  // a child uses none
  Reservation& all = reservation();
  MutexLock lock(all.mutex);
  const auto offset = static_cast<std::size_t>(begin - all.begin.load(std::memory_order_relaxed));
  set_owner(all, offset / kCellBytes, cells_for(bytes), kFree);
}

}  // namespace loom
