// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Elements that a test chooses, brought together. Blocks of elements are counted first; each then
// knows where the rows of what it has chosen begin. Templates, to be compiled where the test is
// known. Thread: any.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace loom::kernels::index {

/// Chooses what is not zero. An element is kWords words, of which the bits in kMask count.
template <class Word, int kWords = 1, Word kMask = std::numeric_limits<Word>::max()>
struct Nonzero {
  const Word* data;
  [[nodiscard]] bool operator()(std::int64_t i) const noexcept {
    if constexpr (kWords == 1) {
      return (data[i] & kMask) != 0;
    } else {
      return ((data[2 * i] | data[2 * i + 1]) & kMask) != 0;
    }
  }
};

/// Elements [begin, end).
template <class Test>
[[nodiscard]] std::int64_t count_chosen(const Test& is_chosen, std::int64_t begin,
                                        std::int64_t end) noexcept {
  std::int64_t count = 0;
  for (std::int64_t i = begin; i < end; ++i) count += is_chosen(i) ? 1 : 0;
  return count;
}

/// Calls write(row, i) for elements from `begin` on, the last time for a row with the one that is
/// chosen: the first of them has `row`, the last one the row before `last`.
template <class Test, class Write>
void write_chosen(const Test& is_chosen, std::int64_t begin, std::int64_t row, std::int64_t last,
                  Write write) noexcept {
  for (std::int64_t i = begin; row < last; ++i) {
    write(row, i);
    row += is_chosen(i) ? 1 : 0;
  }
}

/// Walks elements in row-major order and notes the coordinates of the chosen ones.
class Coordinates {
 public:
  /// Coordinate d of a row goes to[row * row_step + d * column_step]. `element` is the first one.
  Coordinates(std::int64_t* to, std::int64_t row_step, std::int64_t column_step,
              std::span<const std::int64_t> sizes, std::int64_t element)
      : to_(to),
        row_step_(row_step),
        column_step_(column_step),
        sizes_(sizes),
        place_(sizes.size()) {
    for (std::size_t d = sizes.size(); d-- > 0;) {
      place_[d] = element % sizes[d];
      element /= sizes[d];
    }
  }

  /// Of elements [begin, end) the chosen ones have the rows [row, last).
  template <class Test>
  void write(const Test& is_chosen, std::int64_t begin, std::int64_t end, std::int64_t row,
             std::int64_t last) {
    const std::size_t along = sizes_.size() - 1;
    while (begin < end && row < last) {
      const std::int64_t length = std::min(sizes_[along] - place_[along], end - begin);
      const std::int64_t first = row;
      std::int64_t* const to = to_ + static_cast<std::int64_t>(along) * column_step_;
      // What is written is overwritten until it is right; nothing beyond the last row.
      for (std::int64_t i = 0; i < length && row < last; ++i) {
        to[row * row_step_] = place_[along] + i;
        row += is_chosen(begin + i) ? 1 : 0;
      }
      for (std::size_t d = 0; d < along; ++d) {
        for (std::int64_t r = first; r < row; ++r) {
          to_[r * row_step_ + static_cast<std::int64_t>(d) * column_step_] = place_[d];
        }
      }
      begin += length;
      next_line();
    }
  }

 private:
  void next_line() {
    place_.back() = 0;
    for (std::size_t d = sizes_.size() - 1; d-- > 0;) {
      if (++place_[d] < sizes_[d]) return;
      place_[d] = 0;
    }
  }

  std::int64_t* const to_;
  const std::int64_t row_step_, column_step_;
  const std::span<const std::int64_t> sizes_;
  std::vector<std::int64_t> place_;
};

}  // namespace loom::kernels::index
