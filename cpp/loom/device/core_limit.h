// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How many cores a kernel may run on, in the whole process: at most as many as its device has. The
// blocks of a kernel do not depend on it, so neither do results.
// Thread: any, at any time; kernels that begin later keep to it, those that are queued, too.

#include "loom/base/export.h"

#include <atomic>
#include <climits>

namespace loom {

namespace detail {
// Relaxed: a number that orders nothing.
extern LOOM_API std::atomic<int> g_core_limit;
}  // namespace detail

/// INT_MAX until it is set.
[[nodiscard]] inline int core_limit() noexcept {
  return detail::g_core_limit.load(std::memory_order_relaxed);
}

/// Throws: loom::Error unless `cores` is positive.
LOOM_API void set_core_limit(int cores);

}  // namespace loom
