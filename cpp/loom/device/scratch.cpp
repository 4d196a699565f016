// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/scratch.h"

#include "loom/base/mutex.h"
#include "loom/device/properties.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <vector>

namespace loom {

thread_local constinit detail::HeldScratch detail::t_scratch;

namespace {

using detail::ScratchMemory;

constexpr std::align_val_t kAlignment{64};

// How many there are: all are made while libraries are loaded, one after the other.
constinit std::size_t g_purposes = 0;

/// One device's numbers. Relaxed: they order nothing; `current` is exact whenever nobody reserves.
struct Counters {
  std::atomic<std::int64_t> current{0}, peak{0}, allocated{0}, freed{0};
  // Changes with every release: threads that hold memory then free it when they let go.
  std::atomic<std::uint32_t> releases{0};

  void grow(std::int64_t bytes) noexcept {
    allocated.fetch_add(bytes, std::memory_order_relaxed);
    const std::int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t most = peak.load(std::memory_order_relaxed);
    while (most < now && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
  }
  void shrink(std::int64_t bytes) noexcept {
    freed.fetch_add(bytes, std::memory_order_relaxed);
    current.fetch_sub(bytes, std::memory_order_relaxed);
  }
};

Counters& counters(int device) noexcept {
  static constinit std::array<Counters, kMaxDevices> all;
  return all[static_cast<std::size_t>(std::clamp(device, 0, kMaxDevices - 1))];
}

/// A thread's memory for all purposes.
struct Owned {
  explicit Owned(int device) : memories(g_purposes), bytes_of(counters(device)) {}

  void free(ScratchMemory& memory) noexcept {
    ::operator delete(memory.start, kAlignment);
    bytes_of.shrink(static_cast<std::int64_t>(memory.bytes));
    memory = {};
  }
  void free_all() noexcept {
    for (ScratchMemory& memory : memories) free(memory);
  }

  // Locked by the thread from its first reservation until it lets go; others only try it.
  Mutex held{"Scratch", HeldInWaits::kAllowed};
  std::vector<ScratchMemory> memories;  // guarded by `held`
  Counters& bytes_of;
  std::uint32_t releases = bytes_of.releases.load(std::memory_order_relaxed);  // guarded by `held`
};

/// What all threads own. Leaked: threads end after static destruction, too. Its mutex is taken
/// before `held`, which is only tried then.
struct Registry {
  Mutex mutex;
  std::vector<Owned*> all LOOM_GUARDED_BY(mutex);
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

// Without destructors: they serve until the thread's very end.
constinit thread_local Owned* t_owned = nullptr;
constinit thread_local int t_device = 0;
constinit thread_local bool t_leaving = false;

/// Frees the thread's memory when it ends.
struct Cleanup {
  Cleanup() noexcept {}
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  ~Cleanup() {
    t_leaving = true;
    if (in_bad_fork()) return;
    let_go_of_scratch();
    Owned* const owned = t_owned;
    t_owned = nullptr;
    {
      Registry& known = registry();
      MutexLock lock(known.mutex);
      std::erase(known.all, owned);
    }
    owned->free_all();  // nobody else knows of it
    delete owned;
  }
};

// A thread that reserves after its clean-up leaks what it gets; it is about to end.
Owned& own() {
  if (t_owned != nullptr) return *t_owned;
  auto owned = std::make_unique<Owned>(t_device);
  {
    Registry& known = registry();
    MutexLock lock(known.mutex);
    known.all.push_back(owned.get());
  }
  t_owned = owned.release();
  if (!t_leaving) thread_local const Cleanup cleanup;
  return *t_owned;
}

// Held beyond the scope: until the thread lets go.
Owned& hold() LOOM_NO_THREAD_SAFETY_ANALYSIS {
  Owned& owned = own();
  if (detail::t_scratch.count == 0) {
    owned.held.lock();
    detail::t_scratch = {owned.memories.data(), owned.memories.size()};
  }
  return owned;
}

}  // namespace

detail::LeavingNote::~LeavingNote() { t_leaving = true; }

bool detail::thread_is_leaving() noexcept { return t_leaving; }

void detail::let_go_of_held_scratch() noexcept LOOM_NO_THREAD_SAFETY_ANALYSIS {
  Owned& owned = *t_owned;
  const std::uint32_t releases = owned.bytes_of.releases.load(std::memory_order_relaxed);
  if (owned.releases != releases) {
    owned.releases = releases;
    owned.free_all();
  }
  t_scratch = {};
  owned.held.unlock();
}

Scratch::Scratch() noexcept : index_(g_purposes++) {}

void* Scratch::grow(std::size_t bytes) const {
  Owned& owned = hold();
  ScratchMemory& memory = owned.memories.at(index_);
  if (bytes <= memory.bytes) return memory.start;
  if (memory.start != nullptr) owned.free(memory);
  memory.start = ::operator new(bytes, kAlignment);
  memory.bytes = bytes;
  owned.bytes_of.grow(static_cast<std::int64_t>(bytes));
  return memory.start;
}

void set_scratch_device(int device) noexcept { t_device = device; }

void release_scratch(int device) LOOM_NO_THREAD_SAFETY_ANALYSIS {
  Counters& bytes_of = counters(device);
  bytes_of.releases.fetch_add(1, std::memory_order_relaxed);
  // The caller is in no kernel, unless it is one of loom's threads.
  Registry& known = registry();
  MutexLock lock(known.mutex);
  for (Owned* const owned : known.all) {
    if (&owned->bytes_of != &bytes_of || !owned->held.try_lock()) continue;
    owned->releases = bytes_of.releases.load(std::memory_order_relaxed);
    owned->free_all();
    owned->held.unlock();
  }
}

ScratchBytes scratch_bytes(int device) noexcept {
  const Counters& of = counters(device);
  return {of.current.load(std::memory_order_relaxed), of.peak.load(std::memory_order_relaxed),
          of.allocated.load(std::memory_order_relaxed), of.freed.load(std::memory_order_relaxed)};
}

void reset_scratch_peak(int device) noexcept {
  Counters& of = counters(device);
  of.peak.store(of.current.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void reset_accumulated_scratch(int device) noexcept {
  Counters& of = counters(device);
  of.allocated.store(0, std::memory_order_relaxed);
  of.freed.store(0, std::memory_order_relaxed);
}

}  // namespace loom
