// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// 4096 bits that answer "the next one set from here" in a handful of instructions: one word says
// which of the 64 words below it have any bit. Thread: none of its own; the caller locks.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace loom::detail {

class BitIndex {
 public:
  static constexpr std::size_t kBits = 4096;
  static constexpr std::size_t kNone = kBits;

  void set(std::size_t bit) noexcept {
    words_[bit / 64] |= std::uint64_t{1} << (bit % 64);
    summary_ |= std::uint64_t{1} << (bit / 64);
  }

  void clear(std::size_t bit) noexcept {
    std::uint64_t& word = words_[bit / 64];
    word &= ~(std::uint64_t{1} << (bit % 64));
    if (word == 0) summary_ &= ~(std::uint64_t{1} << (bit / 64));
  }

  [[nodiscard]] bool test(std::size_t bit) const noexcept {
    return (words_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  /// The lowest bit set that is not below `from`, or kNone.
  [[nodiscard]] std::size_t first_from(std::size_t from) const noexcept {
    const std::size_t word = from / 64;
    const std::uint64_t here = words_[word] >> (from % 64);
    if (here != 0) return from + static_cast<std::size_t>(std::countr_zero(here));
    // Shifted twice, as a shift by 64 is undefined.
    const std::uint64_t later = summary_ >> word >> 1;
    if (later == 0) return kNone;
    const std::size_t next = word + 1 + static_cast<std::size_t>(std::countr_zero(later));
    return next * 64 + static_cast<std::size_t>(std::countr_zero(words_[next]));
  }

  /// The highest bit set that is not above `from`, or kNone.
  [[nodiscard]] std::size_t last_up_to(std::size_t from) const noexcept {
    const std::size_t word = from / 64;
    const std::uint64_t here = words_[word] << (63 - from % 64);
    if (here != 0) return from - static_cast<std::size_t>(std::countl_zero(here));
    const std::uint64_t earlier = summary_ & ((std::uint64_t{1} << word) - 1);
    if (earlier == 0) return kNone;
    const auto previous = static_cast<std::size_t>(63 - std::countl_zero(earlier));
    return previous * 64 + 63 - static_cast<std::size_t>(std::countl_zero(words_[previous]));
  }

 private:
  // Bit w of the summary is set exactly when words_[w] is not zero.
  std::uint64_t summary_ = 0;
  std::array<std::uint64_t, 64> words_{};
};

}  // namespace loom::detail
