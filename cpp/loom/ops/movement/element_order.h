// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The inner loops of copies that move single elements, or runs shorter than a cache line. Thread:
// any. Requires: both sides do not overlap; elements of 1, 2, 4, 8 or 16 bytes.

#include <cstddef>
#include <cstdint>

namespace loom::ops {

[[nodiscard]] constexpr bool is_element(std::size_t bytes) noexcept {
  return bytes != 0 && bytes <= 16 && (bytes & (bytes - 1)) == 0;
}

/// to[i] = from[offsets[i]]; offsets are in bytes.
void copy_by_table(std::byte* to, const std::byte* from, const std::int32_t* offsets,
                   std::int64_t count, std::size_t item_bytes) noexcept;

/// to[i] = from[-i]
void copy_reversed(std::byte* to, const std::byte* from, std::int64_t count,
                   std::size_t item_bytes) noexcept;

/// One dimension of what is copied, in bytes.
struct ElementSteps {
  std::int64_t count;
  std::ptrdiff_t to, from;
};

/// The elements of a matrix, `inner` in the inner loop.
void copy_matrix(std::byte* to, const std::byte* from, const ElementSteps& outer,
                 const ElementSteps& inner, std::size_t item_bytes) noexcept;

/// Runs of 1 to 63 bytes.
void copy_tiny_runs(std::byte* to, const std::byte* from, const ElementSteps& runs,
                    std::size_t bytes) noexcept;

}  // namespace loom::ops
