// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011): ten rounds of multiplications turn a 128-bit counter and
// a 64-bit key into four 32-bit words. Kernels read its words in tiles, whose layout suits vector
// units and makes every element a function of (seed, offset, its index) alone.
// Thread: any; there is no state.

#include "loom/simd/versions.h"

#include <array>
#include <cstdint>

namespace loom::kernels::rng {

/// A range of the sequence that PhiloxGenerator::reserve() gave out.
struct PhiloxStream {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< in words, a multiple of 4
};

/// Words of one tile: those of 16 consecutive counters.
inline constexpr int kTileCounters = 16;
inline constexpr int kTileWords = 4 * kTileCounters;

/// One block: the four words of `counter` under `key`.
[[nodiscard, gnu::always_inline]] constexpr std::array<std::uint32_t, 4> philox_4x32_10(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{counter[0]} * 0xD2511F53U;
    const std::uint64_t b = std::uint64_t{counter[2]} * 0xCD9E8D57U;
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// Writes the words of tiles [first, first + count) of `stream` to `words`. Word k of a tile is
/// word k / 16 of the tile's counter k % 16; tile t begins at counter offset / 4 + 16 t.
LOOM_SIMD_VERSIONS(philox_tiles, void(const PhiloxStream& stream, std::uint64_t first,
                                      std::int64_t count, std::uint32_t* words) noexcept);

}  // namespace loom::kernels::rng
