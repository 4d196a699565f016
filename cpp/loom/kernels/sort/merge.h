// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sorting of few items by their keys, without branches that depend on them: groups of a few by
// counting how many items go before each, then by merging. Equal keys stay in order. Thread: any;
// only what is passed is touched.

#include "loom/kernels/sort/radix.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace loom::kernels::sort {

namespace detail {

/// Items that are put in order by comparing each with all others.
inline constexpr std::int64_t kGroup = 8;

template <class Item>
void order_group(const Item* from, std::int64_t count, Item* to) noexcept {
  std::int64_t before[kGroup] = {};
  for (std::int64_t i = 1; i < count; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      const bool swaps = key_of(from[i]) < key_of(from[j]);
      before[j] += swaps;
      before[i] += !swaps;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) to[before[i]] = from[i];
}

/// Of runs of one length, from both ends at once: neither can run out before the middle.
template <class Item>
void merge_even(const Item* from, std::int64_t length, Item* to) noexcept {
  const Item *left = from, *right = from + length;
  const Item *last_left = right - 1, *last_right = right + length - 1;
  Item* last = to + 2 * length - 1;
  for (std::int64_t i = 0; i < length; ++i) {
    const bool takes = key_of(*right) < key_of(*left);
    *to++ = *(takes ? right : left);
    right += takes;
    left += !takes;
    const bool keeps = key_of(*last_right) < key_of(*last_left);
    *last-- = *(keeps ? last_left : last_right);
    last_left -= keeps;
    last_right -= !keeps;
  }
}

template <class Item>
void merge(const Item* left, const Item* middle, const Item* end, Item* to) noexcept {
  const Item* right = middle;
  while (left < middle && right < end) {
    const bool takes = key_of(*right) < key_of(*left);
    *to++ = *(takes ? right : left);
    right += takes;
    left += !takes;
  }
  std::copy(right, end, std::copy(left, middle, to));
}

}  // namespace detail

/// Sorts `items`, and returns where they are then: `items` or `spare`.
template <class Item>
[[nodiscard]] Item* sort_few(Item* items, Item* spare, std::int64_t count) noexcept {
  using namespace detail;
  for (std::int64_t i = 0; i < count; i += kGroup) {
    order_group(items + i, std::min(kGroup, count - i), spare + i);
  }
  std::swap(items, spare);
  for (std::int64_t run = kGroup; run < count; run *= 2) {
    for (std::int64_t i = 0; i < count; i += 2 * run) {
      if (i + 2 * run <= count) {
        merge_even(items + i, run, spare + i);
      } else {
        detail::merge(items + i, items + std::min(count, i + run), items + count, spare + i);
      }
    }
    std::swap(items, spare);
  }
  return items;
}

}  // namespace loom::kernels::sort
