// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sorting by digits of keys: items go to where the numbers of items with smaller digits say, one
// digit after the other, from the lowest on. Equal keys stay in order, and what a row looks like
// does not depend on the blocks that it is cut into. Thread: any; only what is passed is touched.

#include "loom/base/ceil_div.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace loom::kernels::sort {

/// A key of at most 32 bits and the place of its element, as one number.
using NarrowItem = std::uint64_t;
struct WideItem {
  std::uint64_t key, place;
};

inline constexpr int kNarrowShift = 32;

[[nodiscard]] inline NarrowItem make_item(NarrowItem, std::uint64_t key,
                                          std::int64_t place) noexcept {
  return key << kNarrowShift | static_cast<std::uint64_t>(place);
}
[[nodiscard]] inline WideItem make_item(WideItem, std::uint64_t key, std::int64_t place) noexcept {
  return {key, static_cast<std::uint64_t>(place)};
}
[[nodiscard]] inline std::uint64_t key_of(NarrowItem item) noexcept { return item >> kNarrowShift; }
[[nodiscard]] inline std::uint64_t key_of(const WideItem& item) noexcept { return item.key; }
[[nodiscard]] inline std::int64_t place_of(NarrowItem item) noexcept {
  return static_cast<std::int64_t>(item & 0xffff'ffff);
}
[[nodiscard]] inline std::int64_t place_of(const WideItem& item) noexcept {
  return static_cast<std::int64_t>(item.place);
}

inline constexpr int kDigitBits = 8;
inline constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

/// Items [begin(b), begin(b + 1)) of `count` are block b's.
struct ItemBlocks {
  std::int64_t count, length;

  [[nodiscard]] std::int64_t blocks() const noexcept { return ceil_div(count, length); }
  [[nodiscard]] std::int64_t begin(std::int64_t block) const noexcept {
    return std::min(count, block * length);
  }
};

/// Sorts `items` by their keys, of which the bits in `varying` are not all the same, and returns
/// where they are then: `items` or `spare`. `run(blocks, body)` calls body(b) for every block.
template <class Item, class Run>
[[nodiscard]] Item* sort_items(Item* items, Item* spare, const ItemBlocks& cut,
                               std::uint64_t varying, Run&& run) {
  const std::int64_t blocks = cut.blocks();
  std::vector<std::array<std::int64_t, kDigits>> next(static_cast<std::size_t>(blocks));
  while (varying != 0) {
    const int shift = std::countr_zero(varying);
    const auto digit = [shift](const Item& item) {
      return static_cast<std::size_t>(key_of(item) >> shift & (kDigits - 1));
    };
    run(blocks, [&](std::int64_t block) {
      auto& counts = next[static_cast<std::size_t>(block)];
      counts.fill(0);
      for (std::int64_t i = cut.begin(block); i < cut.begin(block + 1); ++i) {
        ++counts[digit(items[i])];
      }
    });
    std::int64_t before = 0;
    for (std::size_t d = 0; d < kDigits; ++d) {
      for (auto& counts : next) before += std::exchange(counts[d], before);
    }
    run(blocks, [&](std::int64_t block) {
      auto places = next[static_cast<std::size_t>(block)];
      for (std::int64_t i = cut.begin(block); i < cut.begin(block + 1); ++i) {
        spare[places[digit(items[i])]++] = items[i];
      }
    });
    std::swap(items, spare);
    varying &= shift + kDigitBits < 64 ? ~std::uint64_t{0} << (shift + kDigitBits) : 0;
  }
  return items;
}

}  // namespace loom::kernels::sort
