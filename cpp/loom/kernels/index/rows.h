// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Items that are combined with others as wholes: index_add, index_copy and their kin. Templates, to
// be compiled where the combination is known. Thread: any.

#include "loom/kernels/index/lines.h"

#include <cstdint>
#include <type_traits>

namespace loom::kernels::index {

/// The part of a tensor's rows that a block works on.
template <class T>
struct Rows {
  T* result;
  const T* source;
  const Lines& lines;
  const Places& places;
  bool cuts_items;

  template <class Combination>
  void combine(const Part& part, Combination combination) const {
    const std::int64_t width = part.column_end - part.column_begin;
    for (std::int64_t outer = part.outer_begin; outer < part.outer_end; ++outer) {
      T* const to = result + outer * lines.items * lines.inner + part.column_begin;
      const T* const from = source + outer * lines.count * lines.inner + part.column_begin;
      if (width == 1 && !cuts_items) {
        for (std::int64_t i = 0; i < lines.count; ++i) {
          T& element = to[places[i] * lines.inner];
          element = combination(element, from[i * lines.inner]);
        }
        continue;
      }
      for (std::int64_t i = 0; i < lines.count; ++i) {
        const std::int64_t item = places[i];
        if (item < part.item_begin || item >= part.item_end) continue;
        T* __restrict const row = to + item * lines.inner;
        const T* __restrict const with = from + i * lines.inner;
        for (std::int64_t c = 0; c < width; ++c) row[c] = combination(row[c], with[c]);
      }
    }
  }

  /// Changes the elements of the items that `chooses`.
  template <class Choice, class Change>
  void change(const Part& part, Choice chooses, Change change) const {
    const std::int64_t width = part.column_end - part.column_begin;
    for (std::int64_t outer = part.outer_begin; outer < part.outer_end; ++outer) {
      T* const to = result + outer * lines.items * lines.inner + part.column_begin;
      for (std::int64_t item = part.item_begin; item < part.item_end; ++item) {
        if (!chooses(item)) continue;
        for (std::int64_t c = 0; c < width; ++c) change(to[item * lines.inner + c], item);
      }
    }
  }
};

template <class T>
T quotient(T sum, std::int64_t count) {
  const auto by = static_cast<T>(count);
  if constexpr (std::is_floating_point_v<T>) {
    return sum / by;
  } else {
    return sum / by - (sum % by < 0 ? 1 : 0);  // rounded down
  }
}

}  // namespace loom::kernels::index
