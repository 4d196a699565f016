// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Submissions that do not wait for room in their queue (Queue::submit()), for callers that must not
// be held: those with a lock, as the wait runs handlers of signals that may want it, and those
// whose later calls are what makes room. Thread: each has its own.

#include "loom/base/export.h"

namespace loom {

/// While one exists, the submissions of its thread are not held. Callers with a lock call
/// Queue::wait_for_room() before they take it.
class LOOM_API UnheldSubmissions {
 public:
  UnheldSubmissions() noexcept;
  ~UnheldSubmissions();
  UnheldSubmissions(const UnheldSubmissions&) = delete;
  UnheldSubmissions& operator=(const UnheldSubmissions&) = delete;

  [[nodiscard]] static bool active() noexcept;
};

}  // namespace loom
