// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What else than a wait for the device runs inside the wait wrapper (timeline.h), that is, in
// Python without the GIL. Thread: host threads.

#include "loom/base/export.h"

namespace loom {

/// Calls body(context) inside the wait wrapper, if one is set: for what may wait for another host
/// thread, which may wait for the device in turn. Waits inside are as elsewhere.
/// Throws: what the body throws.
LOOM_API void call_in_wait_wrapper(void (*body)(void*), void* context);

/// Runs the handlers of signals that have come meanwhile, for who waits otherwise than in
/// Timeline::wait(). Throws: what they throw.
LOOM_API void handle_signals();

}  // namespace loom
