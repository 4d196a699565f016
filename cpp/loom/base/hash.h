// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Hashes of sequences of words, for tables and, in 64 bits, for keys that are not compared. Thread:
// any.

#include <cstdint>

namespace loom {

/// The hash of a sequence with one more word. Small words and small differences reach all bits;
/// c10::hash_combine(), with the standard library's hash of an integer, which is its value, adds
/// up to the same for many pairs of small integers.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept {
  hash = (hash ^ word) * 0x9E37'79B9'7F4A'7C15U;
  return hash ^ hash >> 32U;
}

}  // namespace loom
