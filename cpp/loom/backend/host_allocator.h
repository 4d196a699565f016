// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Pinned host memory: ATen's caching host allocator over loom/memory/pinned_pool.h. Pinned memory
// that an asynchronous copy uses must be announced with record_pinned_use(): when its tensor is
// dropped, the block is reused only after the copy's stream has passed.
// Thread: any.

#include "loom/base/export.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Stream.h>

namespace loom {

class Queue;

/// The allocator that is registered for loom's device type (at::getHostAllocator).
[[nodiscard]] LOOM_API at::HostAllocator& host_allocator();

/// Announces that work submitted to the stream uses the pinned block; `ptr` and `ctx` are the
/// address and the context of its DataPtr. Returns false when it is not memory of this allocator.
LOOM_API bool record_pinned_use(const void* ptr, void* ctx, const c10::Stream& stream);
LOOM_API bool record_pinned_use(const void* ptr, void* ctx, const Queue& queue);

}  // namespace loom
