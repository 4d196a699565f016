// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether elements are among others, which a set of them says. Templates, to be compiled where the
// types are known. Thread: any; sets never change.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace loom::kernels::index {

/// Any elements. What is not a number is equal to none.
template <class T>
class SortedSet {
 public:
  SortedSet(const T* elements, std::int64_t count) : sorted_(elements, elements + count) {
    if constexpr (std::is_floating_point_v<T>) {
      std::erase_if(sorted_, [](T x) { return std::isnan(x); });
    }
    std::sort(sorted_.begin(), sorted_.end());
    half_ = std::bit_floor(sorted_.size());
  }
  [[nodiscard]] bool has(T element) const noexcept {
    // The last one that is not above it, without branches.
    const T* at = sorted_.data();
    const T* const rest = at + (sorted_.size() - half_);
    at = half_ != 0 && *rest <= element ? rest : at;
    for (std::size_t step = half_ / 2; step != 0; step /= 2) {
      at = at[step] <= element ? at + step : at;
    }
    return half_ != 0 && *at == element;
  }

 private:
  std::vector<T> sorted_;
  std::size_t half_;  // a power of 2, of at least half of them
};

/// Integers from `least` to `least + range`.
template <class T>
class TableSet {
 public:
  TableSet(const T* elements, std::int64_t count, T least, std::uint64_t range)
      : least_(static_cast<std::uint64_t>(least)), named_(range + 1) {
    for (std::int64_t i = 0; i < count; ++i) named_[place(elements[i])] = 1;
  }
  [[nodiscard]] bool has(T element) const noexcept {
    const std::uint64_t at = place(element);
    return at < named_.size() && named_[at] != 0;
  }

 private:
  [[nodiscard]] std::uint64_t place(T element) const noexcept {
    return static_cast<std::uint64_t>(element) - least_;
  }

  std::uint64_t least_;
  std::vector<std::uint8_t> named_;
};

/// to[i] = whether from[i] is in the set, or not in it, for elements [begin, end).
template <class T, class Set>
void find_members(bool* to, const T* from, const Set& set, bool invert, std::int64_t begin,
                  std::int64_t end) noexcept {
  for (std::int64_t i = begin; i < end; ++i) to[i] = set.has(from[i]) != invert;
}

}  // namespace loom::kernels::index
