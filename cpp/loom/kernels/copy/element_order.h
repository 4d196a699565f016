// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The inner loops of copies that move single elements, or runs shorter than a cache line. Thread:
// any. Requires: both sides do not overlap; elements of 1, 2, 4, 8 or 16 bytes.

#include "loom/simd/versions.h"

#include <cstddef>
#include <cstdint>

namespace loom::kernels {

[[nodiscard]] constexpr bool is_element(std::size_t bytes) noexcept {
  return bytes != 0 && bytes <= 16 && (bytes & (bytes - 1)) == 0;
}

/// to[i] = from[offsets[i]]; offsets are in bytes.
LOOM_SIMD_VERSIONS(copy_by_table,
                   void(std::byte* to, const std::byte* from, const std::int32_t* offsets,
                        std::int64_t count, std::size_t item_bytes) noexcept);

/// to[i] = from[-i]
LOOM_SIMD_VERSIONS(copy_reversed, void(std::byte* to, const std::byte* from, std::int64_t count,
                                       std::size_t item_bytes) noexcept);

/// One dimension of what is copied, in bytes.
struct ElementSteps {
  std::int64_t count;
  std::ptrdiff_t to, from;
};

/// The elements of a matrix, `inner` in the inner loop.
LOOM_SIMD_VERSIONS(copy_matrix,
                   void(std::byte* to, const std::byte* from, const ElementSteps& outer,
                        const ElementSteps& inner, std::size_t item_bytes) noexcept);

/// Runs of 1 to 63 bytes.
LOOM_SIMD_VERSIONS(copy_tiny_runs, void(std::byte* to, const std::byte* from,
                                        const ElementSteps& runs, std::size_t bytes) noexcept);

/// Runs of 64 bytes or more.
LOOM_SIMD_VERSIONS(copy_short_runs, void(std::byte* to, const std::byte* from,
                                         const ElementSteps& runs, std::size_t bytes) noexcept);

}  // namespace loom::kernels
