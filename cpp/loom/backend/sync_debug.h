// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// torch.loom.set_sync_debug_mode: operators that make the caller wait for a device say so, or are
// refused. Explicit waits (synchronize, events) are what the program asks for, and stay quiet.
// Thread: any. The mode is the process's, as in CUDA.

#include "loom/base/export.h"

namespace loom {

enum class SyncDebugMode : int { kDefault, kWarn, kError };

LOOM_API void set_sync_debug_mode(SyncDebugMode mode) noexcept;
[[nodiscard]] LOOM_API SyncDebugMode sync_debug_mode() noexcept;

/// What an operator calls before it waits for a device on the caller's thread.
/// Throws: c10::Error in the mode kError, with the operator's name.
LOOM_API void before_host_wait(const char* api);

}  // namespace loom
