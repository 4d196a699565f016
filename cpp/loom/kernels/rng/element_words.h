// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Words without end for one element, for distributions that reject samples: nobody knows beforehand
// how many an element takes. The blocks of all other operators have zeros in the upper half of
// their counters; here it holds the element's index, so no word is read twice.
// Thread: one at a time.

#include "loom/kernels/rng/philox.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

namespace loom::kernels::rng {

class ElementWords {
 public:
  /// What a call takes from its generator: one tile, whatever the number of elements.
  static constexpr int kReservedWords = 1;

  /// Requires: `stream` is of kReservedWords; 0 <= element < 2^40.
  ElementWords(PhiloxStream stream, std::int64_t element) noexcept
      : stream_(stream), upper_(static_cast<std::uint64_t>(element + 1) << kBlockBits) {}

  /// Of [0, 1), 53 bits.
  double uniform() noexcept {
    const std::uint64_t low = word(), high = word();
    return static_cast<double>((low | high << 32) >> 11) * 0x1p-53;
  }

  /// Of the standard normal distribution, by Box and Muller's method (1958).
  double normal() noexcept {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  static constexpr int kBlockBits = 24;

  std::uint32_t word() noexcept {
    if (next_ == words_.size()) load();
    return words_[next_++];
  }

  // Blocks go through the counters of the tile first, then through the element's upper halves.
  void load() noexcept {
    const std::uint64_t lower = stream_.offset / 4 + block_ % kTileCounters;
    const std::uint64_t upper = upper_ + block_ / kTileCounters;
    ++block_;
    next_ = 0;
    words_ = philox_4x32_10(
        {static_cast<std::uint32_t>(lower), static_cast<std::uint32_t>(lower >> 32),
         static_cast<std::uint32_t>(upper), static_cast<std::uint32_t>(upper >> 32)},
        {static_cast<std::uint32_t>(stream_.seed), static_cast<std::uint32_t>(stream_.seed >> 32)});
  }

  const PhiloxStream stream_;
  const std::uint64_t upper_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> words_{};
  std::size_t next_ = words_.size();
};

}  // namespace loom::kernels::rng
