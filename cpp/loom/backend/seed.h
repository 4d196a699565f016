// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Seeds of the random generators, apart from generator.h so that it costs no ATen header.
// Thread: any.

#include "loom/base/export.h"

#include <cstdint>

namespace loom {

/// Seeds the default generator of the current device, or of all devices.
LOOM_API void manual_seed(std::uint64_t seed);
LOOM_API void manual_seed_all(std::uint64_t seed);

}  // namespace loom
