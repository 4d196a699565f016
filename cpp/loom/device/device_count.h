// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Apart from device.h so that the public headers do not carry the engine. Thread: any.

#include "loom/base/export.h"

namespace loom {

/// How many devices there are. Uses none: a process that has only asked may fork.
/// Throws: loom::Error for a bad LOOM_* variable.
[[nodiscard]] LOOM_API int device_count();

}  // namespace loom
