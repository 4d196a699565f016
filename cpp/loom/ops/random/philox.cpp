// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/random/philox.h"

namespace loom::ops::random {

void detail::philox_portable(std::uint64_t seed, std::uint64_t counter, std::int64_t count,
                             std::uint32_t* words) noexcept {
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed),
                                            static_cast<std::uint32_t>(seed >> 32)};
  for (std::int64_t tile = 0; tile < count; ++tile, words += kTileWords) {
    for (int lane = 0; lane < kTileCounters; ++lane, ++counter) {
      const auto block = philox_4x32_10(
          {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
          key);
      for (int word = 0; word < 4; ++word) words[word * kTileCounters + lane] = block[word];
    }
  }
}

void philox_tiles(PhiloxStream stream, std::uint64_t first, std::int64_t count,
                  std::uint32_t* words) noexcept {
  static const detail::PhiloxFunction function = detail::philox_functions().front();
  function(stream.seed, stream.offset / 4 + first * kTileCounters, count, words);
}

}  // namespace loom::ops::random
