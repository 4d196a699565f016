// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A row of elements sorted by digits of their keys, or by merging if it is short, with the places
// that they come from; equal elements stay in order. Templates, to be compiled where the keys are
// known. Thread: any; only what is passed is touched.

#include "loom/kernels/sort/keys.h"
#include "loom/kernels/sort/merge.h"
#include "loom/kernels/sort/radix.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace loom::kernels::sort {

/// A row to be sorted, and where its elements go; steps are in elements.
template <class Raw>
struct Row {
  const Raw* from;
  Raw* values;
  std::int64_t* places;
  std::int64_t count, step, values_step, places_step;
};

namespace detail {

/// What is known of the keys of a row, or of a part of it.
struct KeyRange {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max(), most = 0;
  bool loses = false;

  void take(const KeyRange& other) noexcept {
    least = std::min(least, other.least);
    most = std::max(most, other.most);
    loses = loses || other.loses;
  }
};

template <class Keys>
struct Order {
  using Raw = typename Keys::Raw;
  using Key = typename Keys::Key;

  Key flip;  ///< all bits for a descending order

  [[nodiscard]] std::uint64_t key(Raw element) const noexcept {
    return static_cast<Key>(Keys::encode(element) ^ flip);
  }
  [[nodiscard]] Raw element(std::uint64_t key) const noexcept {
    return Keys::decode(static_cast<Key>(static_cast<Key>(key) ^ flip));
  }
};

template <class Keys>
KeyRange range_of(const Row<typename Keys::Raw>& row, std::int64_t begin, std::int64_t end,
                  const Order<Keys>& order) noexcept {
  KeyRange range;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto element = row.from[i * row.step];
    const std::uint64_t key = order.key(element);
    range.least = std::min(range.least, key);
    range.most = std::max(range.most, key);
    range.loses |= Keys::loses(element);
  }
  return range;
}

/// Sorts a row with items whose keys are differences from the least one.
template <class Keys, class Item, class Run>
void sort_with(const Row<typename Keys::Raw>& row, const Order<Keys>& order, const KeyRange& range,
               const ItemBlocks& cut, Item* items, Item* spare, Run&& run) {
  run(cut.blocks(), [&](std::int64_t block) {
    for (std::int64_t i = cut.begin(block); i < cut.begin(block + 1); ++i) {
      items[i] = make_item(Item{}, order.key(row.from[i * row.step]) - range.least, i);
    }
  });
  const std::uint64_t width = range.most - range.least;
  const std::uint64_t varying = width == 0 ? 0 : ~std::uint64_t{0} >> std::countl_zero(width);
  const Item* const sorted = sort_items(items, spare, cut, varying, run);
  run(cut.blocks(), [&](std::int64_t block) {
    for (std::int64_t i = cut.begin(block); i < cut.begin(block + 1); ++i) {
      const std::int64_t place = place_of(sorted[i]);
      row.places[i * row.places_step] = place;
      row.values[i * row.values_step] =
          range.loses ? row.from[place * row.step] : order.element(key_of(sorted[i]) + range.least);
    }
  });
}

}  // namespace detail

/// Bytes that sort_row() needs beside the row.
template <class Keys>
[[nodiscard]] constexpr std::int64_t scratch_bytes(std::int64_t count) noexcept {
  constexpr std::size_t kItem =
      sizeof(typename Keys::Raw) > 4 ? sizeof(WideItem) : sizeof(NarrowItem);
  return 2 * count * static_cast<std::int64_t>(kItem);
}

/// `scratch` has scratch_bytes(), aligned for items. `run(blocks, body)` calls body(b) for every
/// block of `block_length` elements, on which the result does not depend.
template <class Keys, class Run>
void sort_row(const Row<typename Keys::Raw>& row, bool descending, std::int64_t block_length,
              std::byte* scratch, Run&& run) {
  using Key = typename Keys::Key;
  const detail::Order<Keys> order{descending ? std::numeric_limits<Key>::max() : Key{0}};
  const ItemBlocks cut{row.count, block_length};
  std::vector<detail::KeyRange> ranges(static_cast<std::size_t>(cut.blocks()));
  run(cut.blocks(), [&](std::int64_t block) {
    ranges[static_cast<std::size_t>(block)] =
        detail::range_of(row, cut.begin(block), cut.begin(block + 1), order);
  });
  detail::KeyRange range;
  for (const detail::KeyRange& part : ranges) range.take(part);
  const auto sort = [&]<class Item>(Item) {
    auto* const items = reinterpret_cast<Item*>(scratch);
    detail::sort_with(row, order, range, cut, items, items + row.count, run);
  };
  if (range.most - range.least <= std::numeric_limits<std::uint32_t>::max()) {
    sort(NarrowItem{});
  } else {
    sort(WideItem{});
  }
}

/// The same, of a row that is too short for digits; requires: fewer than 2^32 elements.
template <class Keys>
void sort_short_row(const Row<typename Keys::Raw>& row, bool descending,
                    std::byte* scratch) noexcept {
  using Key = typename Keys::Key;
  using Item = std::conditional_t<(sizeof(Key) > 4), WideItem, NarrowItem>;
  const detail::Order<Keys> order{descending ? std::numeric_limits<Key>::max() : Key{0}};
  auto* const items = reinterpret_cast<Item*>(scratch);
  bool loses = false;
  for (std::int64_t i = 0; i < row.count; ++i) {
    const auto element = row.from[i * row.step];
    items[i] = make_item(Item{}, order.key(element), i);
    loses |= Keys::loses(element);
  }
  const Item* const sorted = sort_few(items, items + row.count, row.count);
  for (std::int64_t i = 0; i < row.count; ++i) {
    const std::int64_t place = place_of(sorted[i]);
    row.places[i * row.places_step] = place;
    row.values[i * row.values_step] =
        loses ? row.from[place * row.step] : order.element(key_of(sorted[i]));
  }
}

}  // namespace loom::kernels::sort
