// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The memory of a device in numbers, with torch.cuda's names and meaning: bytes; -1 = the current
// device. Thread: any.

#include "loom/base/export.h"

#include <c10/core/Device.h>

#include <cstddef>
#include <utility>

namespace loom {

/// Bytes in live tensors, now and at most since the last reset_peak_memory_stats().
[[nodiscard]] LOOM_API std::size_t memory_allocated(c10::DeviceIndex device = -1);
[[nodiscard]] LOOM_API std::size_t max_memory_allocated(c10::DeviceIndex device = -1);
/// Bytes taken from the system, live or cached.
[[nodiscard]] LOOM_API std::size_t memory_reserved(c10::DeviceIndex device = -1);
[[nodiscard]] LOOM_API std::size_t max_memory_reserved(c10::DeviceIndex device = -1);
LOOM_API void reset_peak_memory_stats(c10::DeviceIndex device = -1);
/// Free and total bytes.
[[nodiscard]] LOOM_API std::pair<std::size_t, std::size_t> mem_get_info(
    c10::DeviceIndex device = -1);
/// Gives cached memory of all devices back to the system.
LOOM_API void empty_cache();

}  // namespace loom
