// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// PYTORCH_ALLOC_CONF, read through c10's AcceleratorAllocatorConfig so that loom takes the same
// settings, with the same errors, as other accelerators. Private to backend/. Thread: any.

#include "loom/memory/caching_allocator.h"

namespace loom {

/// Throws: ValueError, from c10, for a setting that does not parse.
[[nodiscard]] AllocatorConfig read_allocator_config();

/// Gives the settings to the allocators of all devices; called when a program changes them.
void apply_allocator_config();

/// Makes c10 call apply_allocator_config() when settings change. Called once, at load time.
void register_allocator_config();

}  // namespace loom
