// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Warnings of kernels (TORCH_WARN on a loom thread). A program that is not Python gets them on
// stderr at once. Python's filters decide about its warnings, and they may make one an exception:
// so they are kept until a host thread has waited for values, and are given on that thread.
// Thread: any.

#include "loom/base/export.h"

#include <c10/util/Exception.h>

#include <vector>

namespace loom {

/// Gives the host program one warning, outside of PyTorch's own functions; what it throws, the
/// wait throws.
using WarningGiver = void (*)(const c10::Warning& warning);

/// Warnings are kept for this from now on. Set once, before the device is used.
LOOM_API void set_warning_giver(WarningGiver giver) noexcept;

/// Gives what is kept to the calling thread: by its warning handler, if it has one (PyTorch's
/// functions collect what comes while they run), else by the giver. Those after one that throws
/// stay for the next wait. Nothing in a forked child.
LOOM_API void give_kernel_warnings();

/// The handler of loom threads.
[[nodiscard]] c10::WarningHandler& kernel_warning_handler() noexcept;

}  // namespace loom
