// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/sync_debug.h"

#include "loom/backend/cuda_name.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace loom {
namespace {

// Relaxed: a setting of its own; nothing is published with it.
std::atomic<SyncDebugMode> g_mode{SyncDebugMode::kDefault};

}  // namespace

void set_sync_debug_mode(SyncDebugMode mode) noexcept {
  g_mode.store(mode, std::memory_order_relaxed);
}

SyncDebugMode sync_debug_mode() noexcept { return g_mode.load(std::memory_order_relaxed); }

void before_host_wait(const char* api) {
  const SyncDebugMode mode = sync_debug_mode();
  if (mode == SyncDebugMode::kDefault) [[likely]] {
    return;
  }
  // PyTorch's words for CUDA, which programs look for.
  const char* device = cuda_name::in_messages();
  TORCH_CHECK(mode != SyncDebugMode::kError, "called a synchronizing ", device, " operation: ", api,
              " waits for the device");
  TORCH_WARN("called a synchronizing ", device, " operation: ", api, " waits for the device");
}

}  // namespace loom
