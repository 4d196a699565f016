// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Moving bytes: what copies and fills of dense memory come down to. Thread: any; regions of two
// calls at the same time must not overlap.

#include "loom/simd/versions.h"

#include <cstddef>

namespace loom::kernels {

/// Copies of at least this many bytes in all bypass the cache: the destination would not stay in
/// it, and a streaming store saves reading the line first.
inline constexpr std::size_t kStreamingBytes = std::size_t{16} << 20;

/// memcpy; with `streaming` by non-temporal stores where the processor has AVX2.
LOOM_SIMD_VERSIONS(copy_bytes, void(std::byte* destination, const std::byte* source,
                                    std::size_t bytes, bool streaming) noexcept);

}  // namespace loom::kernels
