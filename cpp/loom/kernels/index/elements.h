// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Elements that have an index each: gather, scatter and their kin. Templates, to be compiled where
// the combination is known. Thread: any.

#include "loom/kernels/index/lines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace loom::kernels::index {

/// Where an index leads, and whether all that were asked for are there.
class Checked {
 public:
  explicit Checked(std::int64_t items) noexcept : items_(static_cast<std::uint64_t>(items)) {}
  /// Somewhere in the tensor in any case.
  [[nodiscard]] std::int64_t operator()(std::int64_t place) noexcept {
    const bool there = static_cast<std::uint64_t>(place) < items_;
    all_there_ &= there;
    return there ? place : 0;
  }
  [[nodiscard]] bool all_there() const noexcept { return all_there_; }

 private:
  const std::uint64_t items_;
  bool all_there_ = true;
};

/// Elements [begin, end) of the result. Their lines have an index of their own for each element.
template <class T>
bool gather_range(T* to, const T* from, const std::int64_t* index, const Lines& lines,
                  std::int64_t begin, std::int64_t end) {
  Checked checked(lines.items);
  const bool inner = lines.inner > 1;
  const std::int64_t length = inner ? lines.inner : lines.count;
  std::int64_t line = begin / length, at = begin % length;
  while (begin < end) {
    const std::int64_t count = std::min(length - at, end - begin);
    const T* const base = from + (inner ? line / lines.count : line) * lines.items * lines.inner;
    if (inner) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[begin + i] = base[checked(index[begin + i]) * lines.inner + at + i];
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[begin + i] = base[checked(index[begin + i])];
    }
    begin += count;
    ++line;
    at = 0;
  }
  return checked.all_there();
}

/// Items [begin, end) of the result, counted through all of `outer`, which are lines.inner bytes
/// each: all have the same index, or that of the next one is `index_step` on. False at the first
/// item that is not there.
template <class Index>
[[nodiscard]] bool gather_items(std::byte* to, const std::byte* from, const Index* index,
                                const Lines& lines, std::int64_t begin, std::int64_t end,
                                std::int64_t index_step = 0) {
  // A constant or not: for common sizes the copy is a load and a store.
  const auto copy = [&](auto bytes) {
    std::int64_t outer = begin / lines.count, i = begin % lines.count;
    for (std::int64_t item = begin; item < end; ++item) {
      const auto place = static_cast<std::int64_t>(index[outer * index_step + i]);
      if (place < 0 || place >= lines.items) return false;
      std::memcpy(to + item * bytes, from + (outer * lines.items + place) * bytes,
                  static_cast<std::size_t>(bytes));
      if (++i < lines.count) continue;
      i = 0;
      ++outer;
    }
    return true;
  };
  switch (lines.inner) {
    case 2:
      return copy(std::integral_constant<std::int64_t, 2>{});
    case 4:
      return copy(std::integral_constant<std::int64_t, 4>{});
    case 8:
      return copy(std::integral_constant<std::int64_t, 8>{});
    default:
      return copy(lines.inner);
  }
}

/// Calls write(element, source) for every place of the index in a part.
template <class T, class Write>
bool scatter_part(T* to, const std::int64_t* index, const Lines& lines, const Part& part,
                  Write write) {
  Checked checked(lines.items);
  for (std::int64_t outer = part.outer_begin; outer < part.outer_end; ++outer) {
    T* const base = to + outer * lines.items * lines.inner;
    if (lines.inner == 1) {
      const std::int64_t* const places = index + outer * lines.count;
      const std::int64_t source = outer * lines.supplied;
      for (std::int64_t i = 0; i < lines.count; ++i) write(base[checked(places[i])], source + i);
      continue;
    }
    for (std::int64_t i = 0; i < lines.count; ++i) {
      const std::int64_t* const places = index + (outer * lines.count + i) * lines.inner;
      const std::int64_t source = (outer * lines.supplied + i) * lines.inner;
      for (std::int64_t c = part.column_begin; c < part.column_end; ++c) {
        write(base[checked(places[c]) * lines.inner + c], source + c);
      }
    }
  }
  return checked.all_there();
}

}  // namespace loom::kernels::index
