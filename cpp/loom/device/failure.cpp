// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/failure.h"

#include "loom/base/check.h"
#include "loom/base/mutex.h"
#include "loom/device/thread.h"

#include <cstddef>
#include <cstdio>
#include <new>
#include <vector>

namespace loom {
namespace {

/// The failures that nobody had seen when they were made.
struct Unseen {
  static constexpr std::size_t kMost = 16;
  Mutex mutex;
  std::vector<FailurePtr> failures LOOM_GUARDED_BY(mutex);
  std::size_t dropped LOOM_GUARDED_BY(mutex) = 0;
};

Unseen& unseen() {
  static auto* const instance = new Unseen;  // leaked: asked at the very end of the process
  return *instance;
}

// Made when the library is loaded: report_unseen_failures() needs no memory.
[[maybe_unused]] const Unseen* const g_unseen_made_early = &unseen();

bool was_seen(const FailurePtr& failure) { return failure->seen(); }

// Relaxed, both: numbers, which order nothing.
std::atomic<std::uint64_t> g_waiting_threads{0};
std::atomic<std::uint64_t> g_lost{0};

}  // namespace

const FailurePtr& detail::failure_without_memory() {
  static const auto* const failure = [] {
    std::string text =
        "a command failed, and the host had no memory left to note which memory of the device "
        "lacks values because of it: all of it counts as failed until it is written all over or "
        "allocated again";
    return new FailurePtr(
        std::make_shared<Failure>(std::make_exception_ptr(Error(text)), std::move(text)));
  }();  // leaked: workers ask until the process ends
  return *failure;
}

void detail::number_waiting_thread() noexcept {
  t_waiting_thread = {g_waiting_threads.fetch_add(1, std::memory_order_relaxed) + 1,
                      g_lost.load(std::memory_order_relaxed)};
}

std::uint64_t detail::next_lost_number() noexcept {
  return g_lost.fetch_add(1, std::memory_order_relaxed) + 1;
}

void remember_failure(const FailurePtr& failure) noexcept {
  if (in_bad_fork()) return;
  Unseen& all = unseen();
  MutexLock lock(all.mutex);
  std::erase_if(all.failures, was_seen);
  try {
    if (all.failures.size() < Unseen::kMost) return all.failures.push_back(failure);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is counted
  }
  ++all.dropped;
}

void report_unseen_failures() noexcept {
  if (in_bad_fork()) return;
  std::vector<FailurePtr> failures;
  std::size_t dropped = 0;
  {
    Unseen& all = unseen();
    MutexLock lock(all.mutex);
    failures.swap(all.failures);
    std::swap(dropped, all.dropped);
  }
  std::erase_if(failures, was_seen);
  for (const FailurePtr& failure : failures) {
    failure->note_seen();
    std::fprintf(stderr, "loom: the process ends with an error that nobody has seen: %s\n",
                 failure->text().c_str());
  }
  if (!failures.empty() && dropped > 0) std::fprintf(stderr, "loom: and %zu more\n", dropped);
}

}  // namespace loom
