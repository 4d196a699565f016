// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a layer above has to tell the host program about work that has run (warnings of kernels):
// whoever noted it, a host thread that has waited for values calls the notifier, with no lock held.
// Thread: any.

#include "loom/base/export.h"

#include <atomic>

namespace loom {

/// Tells the host program all there is; what it throws, the wait throws.
using HostNotifier = void (*)();

/// Set once, before the device is used; null for none.
LOOM_API void set_host_notifier(HostNotifier notifier) noexcept;

/// There is something to tell: the next wait for values calls the notifier.
LOOM_API void note_for_host() noexcept;

namespace detail {

// Set by workers before the timeline reaches the command, looked at after a wait for it: relaxed.
extern LOOM_API std::atomic<bool> g_noted_for_host;

void call_host_notifier();

/// After a wait for values. Throws: what the notifier throws.
inline void notify_host() {
  if (g_noted_for_host.load(std::memory_order_relaxed)) [[unlikely]] {
    call_host_notifier();
  }
}

}  // namespace detail
}  // namespace loom
