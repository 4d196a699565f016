// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/host_release.h"

#include "loom/base/mutex.h"
#include "loom/device/host_notice.h"
#include "loom/device/thread.h"

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace loom {
namespace {

struct Dropped {
  Mutex mutex;
  std::vector<c10::Storage> storages LOOM_GUARDED_BY(mutex);
  // Of `storages`. Relaxed: read without the lock only to see that there is nothing.
  std::atomic<std::size_t> count{0};
};

Dropped& dropped() {
  static auto* const instance = new Dropped;  // leaked: workers drop until the process ends
  return *instance;
}

// Made when the library is loaded: workers that have no memory for it have nobody to tell.
[[maybe_unused]] const Dropped* const g_dropped_made_early = &dropped();

/// Without memory for the list the storage is never freed.
void defer(c10::Storage&& storage) noexcept {
  Dropped& all = dropped();
  MutexLock lock(all.mutex);
  try {
    all.storages.push_back(std::move(storage));
  } catch (const std::bad_alloc&) {
    (void)storage.unsafeReleaseStorageImpl();
    return;
  }
  all.count.store(all.storages.size(), std::memory_order_relaxed);
  note_for_host();
}

}  // namespace

KeptStorage::~KeptStorage() {
  if (storage_ && on_loom_thread() && !in_bad_fork()) defer(std::move(storage_));
}

void release_kept_storages() {
  if (in_bad_fork() || on_loom_thread()) return;
  Dropped& all = dropped();
  if (all.count.load(std::memory_order_relaxed) == 0) return;
  std::vector<c10::Storage> storages;  // freed last, without the lock
  MutexLock lock(all.mutex);
  storages.swap(all.storages);
  all.count.store(0, std::memory_order_relaxed);
}

}  // namespace loom
