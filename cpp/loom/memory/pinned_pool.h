// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Upstream of the pinned host pool: page-aligned host memory with huge pages advised, and the
// answer to "is this address pinned". The caching itself is ATen's CachingHostAllocatorImpl.
// "Pinned" means that loom's workers may read and write the memory asynchronously; it is locked
// into RAM (mlock) where the process's limits allow.
// Thread: any.

#include "loom/base/export.h"

#include <cstddef>

namespace loom {

/// Zeroed memory, or null when the system refuses and for 0 bytes. `bytes` is rounded up to whole
/// pages; from 2 MiB on the address is aligned to huge pages.
[[nodiscard]] LOOM_API void* map_pinned(std::size_t bytes);
/// Requires: from map_pinned(), not yet unmapped (ends the process otherwise); null is ignored.
LOOM_API void unmap_pinned(void* address) noexcept;
/// True for any address inside a live pinned mapping.
[[nodiscard]] LOOM_API bool is_pinned(const void* address) noexcept;

}  // namespace loom
