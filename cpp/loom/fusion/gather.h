// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Copies between strided memory and contiguous tiles. Thread: any.

#include <cstddef>
#include <cstdint>

namespace loom::fusion {

/// A tile of an operand: `rows` rows, evenly spaced, of the columns [column, column + columns),
/// numbered in the order of `dims` dimensions.
struct Gather {
  std::byte* data = nullptr;    ///< column 0 of the first row
  std::int64_t row_stride = 0;  ///< bytes
  std::int64_t rows = 1;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* strides = nullptr;  ///< bytes
  int dims = 0;
  std::int64_t column = 0, columns = 0;
  std::size_t item = 4;  ///< 1, 2, 4 or 8 bytes
};

/// True if the elements of a column are nearer to each other than those of a row.
[[nodiscard]] bool walks_down(const Gather& tile) noexcept;

void gather_elements(const Gather& from, std::byte* tile);
void scatter_elements(const Gather& to, const std::byte* tile);

}  // namespace loom::fusion
