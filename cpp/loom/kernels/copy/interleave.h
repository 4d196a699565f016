// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tensors whose elements take turns in another one: stacked along the last dimension. Thread: any.

#include "loom/simd/versions.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::kernels {

/// True if there is code for elements of so many bytes.
[[nodiscard]] constexpr bool can_interleave(std::size_t item_bytes) noexcept {
  return item_bytes <= 16 && (item_bytes & (item_bytes - 1)) == 0;
}

/// to[i * sources.size() + j] = sources[j][i] for i from `begin` to `end`. Requires:
/// can_interleave(); `to` overlaps with no source.
LOOM_SIMD_VERSIONS(interleave_elements,
                   void(std::span<const std::byte* const> sources, std::size_t item_bytes,
                        std::int64_t begin, std::int64_t end, std::byte* to) noexcept);

}  // namespace loom::kernels
