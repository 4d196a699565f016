// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/failure.h"

#include "loom/base/mutex.h"
#include "loom/device/thread.h"

#include <cstddef>
#include <cstdio>
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

bool was_seen(const FailurePtr& failure) { return failure->seen(); }

}  // namespace

void remember_failure(const FailurePtr& failure) {
  Unseen& all = unseen();
  MutexLock lock(all.mutex);
  std::erase_if(all.failures, was_seen);
  if (all.failures.size() < Unseen::kMost) {
    all.failures.push_back(failure);
  } else {
    ++all.dropped;
  }
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
