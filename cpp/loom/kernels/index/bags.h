// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Bags of embeddings: the indices between two offsets name rows of a table, which are combined.
// Templates, to be compiled where the types are known: Index is std::int32_t or std::int64_t, T
// float, simd::BFloat16 or simd::Half. Thread: any; only what is passed is touched.

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/index/row_maxima.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::kernels::index {

/// Which indices are whose. A place of the index may be of `padding`, and does not count then.
template <class Index>
struct Bags {
  const Index *indices, *offsets;
  std::int64_t count, places;  ///< how many bags and indices there are
  std::int64_t padding = -1;   ///< an index; negative: there is none

  [[nodiscard]] std::int64_t begin(std::int64_t bag) const noexcept {
    return bag < count ? offsets[bag] : places;
  }
  /// The first bag that does not end behind its beginning, or has other places than there are;
  /// `count` if there is none.
  [[nodiscard]] std::int64_t first_misplaced() const noexcept {
    std::int64_t bag = 0;
    while (bag < count && 0 <= begin(bag) && begin(bag) <= begin(bag + 1) &&
           begin(bag + 1) <= places) {
      ++bag;
    }
    return bag;
  }
  /// Whether each begins where the one before ends, and they have all places.
  [[nodiscard]] bool fit(bool has_last) const noexcept {
    return offsets[0] == 0 && (!has_last || offsets[count] == places) && first_misplaced() == count;
  }
  [[nodiscard]] bool is_padding(Index index) const noexcept {
    return padding >= 0 && index == static_cast<Index>(padding);
  }
  /// How many places of a bag count.
  [[nodiscard]] std::int64_t size(std::int64_t bag) const noexcept {
    const Index *const first = indices + begin(bag), *const last = indices + begin(bag + 1);
    return last - first - (padding >= 0 ? std::count(first, last, static_cast<Index>(padding)) : 0);
  }
};

/// Writes to each place of bags [begin, end) which bag it is of.
template <class Index, class Bag>
void name_bags(const Bags<Index>& bags, std::int64_t begin, std::int64_t end, Bag* to) noexcept {
  for (std::int64_t b = begin; b < end; ++b) {
    std::fill(to + bags.begin(b), to + bags.begin(b + 1), static_cast<Bag>(b));
  }
}

/// Writes how many places of bags [begin, end) count.
template <class Index>
void write_sizes(const Bags<Index>& bags, std::int64_t begin, std::int64_t end,
                 Index* to) noexcept {
  for (std::int64_t b = begin; b < end; ++b) to[b] = static_cast<Index>(bags.size(b));
}

/// The places of bags [begin, end) that count, for kernels that know no padding.
template <class Index>
class CountedPlaces {
 public:
  /// `scale`: of each place of the whole index, or null.
  template <class T>
  CountedPlaces(const Bags<Index>& bags, std::int64_t begin, std::int64_t end, const T* scale)
      : indices_(bags.indices + bags.begin(begin)) {
    const std::int64_t first = bags.begin(begin), last = bags.begin(end);
    for (std::int64_t b = begin; b <= end; ++b) {
      starts_.push_back(static_cast<Index>(bags.begin(b) - first));
    }
    if (scale != nullptr) {
      factors_.resize(static_cast<std::size_t>(last - first));
      widen_row<T>(factors_.data(), scale + first, last - first);
    }
    if (bags.padding >= 0) leave_out_padding(bags);
  }
  CountedPlaces(const CountedPlaces&) = delete;
  CountedPlaces& operator=(const CountedPlaces&) = delete;

  [[nodiscard]] const Index* indices() const noexcept { return indices_; }
  /// Where each bag begins, and where the last one ends.
  [[nodiscard]] const std::vector<Index>& starts() const noexcept { return starts_; }
  /// Of each place; null if there is no scale and no place.
  [[nodiscard]] const float* factors() const noexcept { return factors_.data(); }

 private:
  void leave_out_padding(const Bags<Index>& bags) {
    std::int64_t i = 0;
    for (std::size_t b = 0; b + 1 < starts_.size(); ++b) {
      starts_[b] = static_cast<Index>(kept_.size());
      for (; i < starts_[b + 1]; ++i) {
        if (bags.is_padding(indices_[i])) continue;
        if (!factors_.empty()) factors_[kept_.size()] = factors_[static_cast<std::size_t>(i)];
        kept_.push_back(indices_[i]);
      }
    }
    starts_.back() = static_cast<Index>(kept_.size());
    indices_ = kept_.data();
  }

  const Index* indices_;
  std::vector<Index> starts_, kept_;
  std::vector<float> factors_;
};

/// Some columns of rows that lie `pitch` elements apart.
template <class T>
struct RowColumns {
  T* data;
  std::int64_t pitch, columns;

  [[nodiscard]] T* row(std::int64_t number) const noexcept { return data + number * pitch; }
};

/// Divides row b by starts[b + 1] - starts[b], rounded to a T first, as ATen's divisors are, unless
/// that is 0.
template <class T, class Index>
void divide_by_sizes(const RowColumns<T>& rows, const std::vector<Index>& starts) noexcept {
  for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
    const Index size = starts[b + 1] - starts[b];
    if (size <= 1) continue;
    T rounded;
    simd::round_to(rounded, static_cast<float>(size));
    divide_row<T>(rows.row(static_cast<std::int64_t>(b)), simd::widen(rounded), rows.columns);
  }
}

/// Of bags [begin, end) the largest elements of each column, and the indices of the rows that have
/// them, 0 where no place counts. False if an index is of no row of the table, which has
/// `table_rows`.
template <class T, class Index>
[[nodiscard]] bool bag_maxima(const Bags<Index>& bags, std::int64_t begin, std::int64_t end,
                              const RowColumns<const T>& table, std::int64_t table_rows,
                              const RowColumns<T>& maxima, const RowColumns<Index>& of_rows) {
  const std::int64_t columns = table.columns;
  std::vector<const T*> rows;
  std::vector<Index> kept;
  std::vector<std::int32_t> which(static_cast<std::size_t>(columns));
  bool there = true;
  for (std::int64_t b = begin; b < end; ++b) {
    rows.clear();
    kept.clear();
    for (std::int64_t i = bags.begin(b); i < bags.begin(b + 1); ++i) {
      const Index index = bags.indices[i];
      if (index < 0 || index >= table_rows) {
        there = false;
      } else if (!bags.is_padding(index)) {
        rows.push_back(table.row(index));
        kept.push_back(index);
      }
    }
    if (rows.empty()) {
      std::fill_n(maxima.row(b), columns, T{});
      std::fill_n(of_rows.row(b), columns, Index{});
      continue;
    }
    row_maxima<T>(rows.data(), static_cast<std::int32_t>(rows.size()), columns, maxima.row(b),
                  which.data());
    std::transform(which.begin(), which.end(), of_rows.row(b),
                   [&](std::int32_t r) { return kept[static_cast<std::size_t>(r)]; });
  }
  return there;
}

}  // namespace loom::kernels::index
