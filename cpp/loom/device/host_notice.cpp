// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/host_notice.h"

#include "loom/device/thread.h"

namespace loom {
namespace {

// Relaxed: set before the device is used.
std::atomic<HostNotifier> g_notifier{nullptr};

}  // namespace

std::atomic<bool> detail::g_noted_for_host{false};

void set_host_notifier(HostNotifier notifier) noexcept {
  g_notifier.store(notifier, std::memory_order_relaxed);
}

void note_for_host() noexcept { detail::g_noted_for_host.store(true, std::memory_order_relaxed); }

void detail::call_host_notifier() {
  const HostNotifier notifier = g_notifier.load(std::memory_order_relaxed);
  // A thread of loom's that waits is no host: the note stays for one.
  if (notifier == nullptr || on_loom_thread()) return;
  // Cleared before the notifier looks, so that what is noted meanwhile is told by the next one.
  if (g_noted_for_host.exchange(false, std::memory_order_relaxed)) notifier();
}

}  // namespace loom
