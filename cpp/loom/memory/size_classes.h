// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How sizes are rounded, which segment a size is cut from, and when a block is split: the same
// rules as PyTorch's allocator for CUDA, so that its users find the memory use they know.
// Pure functions.

#include "loom/base/ceil_div.h"

#include <cstddef>

namespace loom::detail {

inline constexpr std::size_t kKiB = std::size_t{1} << 10;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Every block is a multiple of this, and aligned to it.
inline constexpr std::size_t kMinBlockBytes = 512;
/// Requests up to this size are cut from the small pool's segments.
inline constexpr std::size_t kSmallBytes = 1 * kMiB;
inline constexpr std::size_t kSmallSegmentBytes = 2 * kMiB;
/// Requests below kMinWholeBytes share segments of this size.
inline constexpr std::size_t kLargeSegmentBytes = 20 * kMiB;
inline constexpr std::size_t kMinWholeBytes = 10 * kMiB;
/// From kMinWholeBytes on, a segment is the request rounded up to this.
inline constexpr std::size_t kWholeRoundingBytes = 2 * kMiB;

/// Requests beyond this are refused unseen: rounding them could overflow.
inline constexpr std::size_t kMaxRequestBytes = ~std::size_t{0} / 4;

/// The size of the block that serves a request. Requires: 0 < bytes <= kMaxRequestBytes.
[[nodiscard]] constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
  return (bytes + kMinBlockBytes - 1) & ~(kMinBlockBytes - 1);
}

[[nodiscard]] constexpr bool is_large(std::size_t size) noexcept { return size > kSmallBytes; }

/// The size of the segment that is mapped for a block of `size`.
[[nodiscard]] constexpr std::size_t segment_bytes(std::size_t size,
                                                  std::size_t granularity) noexcept {
  if (!is_large(size)) return round_up(kSmallSegmentBytes, granularity);
  if (size < kMinWholeBytes) return round_up(kLargeSegmentBytes, granularity);
  return round_up(round_up(size, kWholeRoundingBytes), granularity);
}

/// The smallest segment that could serve it, for when memory is short.
[[nodiscard]] constexpr std::size_t least_segment_bytes(std::size_t size,
                                                        std::size_t granularity) noexcept {
  return round_up(round_up(size, kWholeRoundingBytes), granularity);
}

/// Whether a free block of `block` bytes may serve `size` at all. Blocks of max_split or more
/// ("oversize") are never split, so they serve only requests that would nearly fill them.
[[nodiscard]] constexpr bool may_serve(std::size_t block, std::size_t size, std::size_t max_split,
                                       std::size_t max_rounding) noexcept {
  if (size < max_split) return block < max_split;
  return block - size < max_rounding;
}

/// Whether the rest of a block is cut off. A rest of the large pool must be worth keeping there.
[[nodiscard]] constexpr bool should_split(std::size_t block, std::size_t size, bool large,
                                          std::size_t max_split) noexcept {
  const std::size_t rest = block - size;
  if (!large) return rest >= kMinBlockBytes;
  return size < max_split && rest > kSmallBytes;
}

}  // namespace loom::detail
