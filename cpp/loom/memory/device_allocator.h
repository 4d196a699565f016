// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The caching allocators of the process's devices. Each is made at the first use, over the
// device's arena, and leaked: tensors freed by static destructors still find it. Thread: any.

#include "loom/base/export.h"
#include "loom/memory/caching_allocator.h"

#include <cstddef>

namespace loom {

/// Throws: loom::Error when there is no such device, and as device() does at the first call.
[[nodiscard]] LOOM_API CachingAllocator& device_allocator(int device);

/// Describes the allocation of any device that holds `address`: a FaultDescriber (fault.h).
/// Async-signal-safe: neither allocates nor waits; false when nothing is known.
LOOM_API bool describe_address(const void* address, char* text, std::size_t size) noexcept;

}  // namespace loom
