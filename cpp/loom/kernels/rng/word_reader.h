// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Words of a stream one value after the other, for kernels that are no loops over tiles. Places
// them as distributions.h does: the k-th word of value i of a tile is word i + k * (values of a
// tile). Thread: one at a time.

#include "loom/kernels/rng/philox.h"

#include <array>
#include <cstdint>

namespace loom::kernels::rng {

/// The words of values `begin`, `begin` + 1, ... of a stream; each has kWords of them.
template <int kWords>
class WordReader {
 public:
  static constexpr int kValues = kTileWords / kWords;
  WordReader(PhiloxStream stream, std::int64_t begin) : stream_(stream), index_(begin) { load(); }

  /// The next value's words, the most significant last.
  std::array<std::uint32_t, kWords> next() {
    const int within = static_cast<int>(index_ % kValues);
    if (within == 0 && index_ / kValues != tile_) load();
    std::array<std::uint32_t, kWords> value;
    for (int k = 0; k < kWords; ++k) value[k] = words_[within + k * kValues];
    ++index_;
    return value;
  }

 private:
  void load() {
    tile_ = index_ / kValues;
    philox_tiles(stream_, static_cast<std::uint64_t>(tile_), 1, words_.data());
  }

  const PhiloxStream stream_;
  std::int64_t index_;
  std::int64_t tile_ = 0;
  alignas(64) std::array<std::uint32_t, kTileWords> words_;
};

}  // namespace loom::kernels::rng
