// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A product's operands as matrices, and the blocks that it is cut into: by shapes, strides and
// dtype alone. Thread: values.

#include "loom/base/ceil_div.h"
#include "loom/kernels/gemm/narrow_rows.h"
#include "loom/ops/recipes/product/blocked_product.h"
#include "loom/ops/recipes/product/even_blocks.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace loom::ops::detail {

// Multiply-adds: below the first a block is not worth handing to another core (20 us), above the
// second it is cut further (some 80 us), so that a core that is busy elsewhere is made up for.
inline constexpr double kLeastBlock = 1e6;
inline constexpr double kBlock = 4e6;
// What an item of a batch takes beside its products, in the same unit: calling the block kernel,
// and vectors that are not full.
inline constexpr double kItemOverhead = 3e4;
// Blocks of rows pack the same columns again, each: that has to disappear beside their work.
inline constexpr std::int64_t kFewestRows = 256;
// Accumulators that are not the result itself stay within L2.
inline constexpr std::int64_t kMaxAccumulators = 512 * 128;
// A vector times a matrix of up to so many bytes is one core's (2 us from L2); a larger one is cut
// into blocks of so many, a power of two of them, so that cores get even shares. Blocks of 128 KiB
// left a core without work for longer than smaller ones take to hand out: 26 instead of 31 GB/s of
// matrices from memory, 6 instead of 3.4 us of one of 256 KiB (Zen 4, two cores).
inline constexpr std::int64_t kWholeMatrixBytes = 128 * 1024;
inline constexpr std::int64_t kVectorBlockBytes = 32 * 1024;

/// One product, or a batch of them: element i is `step` elements behind element i - 1.
template <class T>
struct Operand {
  MatrixView<T> first;
  std::int64_t step = 0;

  [[nodiscard]] MatrixView<T> item(std::int64_t index) const noexcept {
    MatrixView<T> view = first;
    view.data += index * step;
    return view;
  }
};

/// A result of T, multiplied as numbers of E: float16 as float32.
template <class T, class E = T>
struct Problem {
  Operand<T> result;
  Operand<const T> addend;
  Operand<const E> left, right;
  std::int64_t batch = 1;
  ProductOptions options;
  std::int64_t row = 0, column = 0;  ///< where it begins in the whole result, all batches' rows

  [[nodiscard]] std::int64_t rows() const noexcept { return result.first.rows; }
  [[nodiscard]] std::int64_t columns() const noexcept { return result.first.columns; }
  [[nodiscard]] std::int64_t inner() const noexcept { return left.first.columns; }
};

// Sizes of 1 have any stride in PyTorch; here the one of a dense matrix.
template <class T>
Operand<T> operand(void* data, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const std::size_t row = sizes.size() - 2, column = row + 1;
  Operand<T> made{{static_cast<T*>(data), sizes[row], sizes[column], strides[row], strides[column]},
                  sizes.size() == 3 ? strides[0] : 0};
  MatrixView<T>& view = made.first;
  if (view.columns == 1 && view.row_stride != 1) view.column_stride = 1;
  if (view.rows == 1 && view.column_stride != 1) view.row_stride = 1;
  if (view.columns == 1 && view.column_stride != 1) view.column_stride = view.rows;
  if (view.rows == 1 && view.row_stride != 1) view.row_stride = view.columns;
  return made;
}
template <class T>
Operand<T> operand(const TensorRef& tensor) {
  return operand<T>(tensor.data(), tensor.sizes(), tensor.strides());
}

template <class T>
Operand<const T> broadcast(const TensorRef& addend, const TensorRef& result) {
  const auto missing = static_cast<std::size_t>(result.dim() - addend.dim());
  std::array<std::int64_t, 3> strides{};
  for (std::size_t d = missing; d < static_cast<std::size_t>(result.dim()); ++d) {
    const bool along = addend.sizes()[d - missing] == result.sizes()[d];
    strides[d] = along && result.sizes()[d] != 1 ? addend.strides()[d - missing] : 0;
  }
  const std::size_t row = static_cast<std::size_t>(result.dim()) - 2;
  return {{reinterpret_cast<const T*>(addend.data()), result.sizes()[row], result.sizes()[row + 1],
           strides[row], strides[row + 1]},
          result.dim() == 3 ? strides[0] : 0};
}

// So many rows meet the columns of the right operand, as a linear layer's weight has them, where
// these lie and as fast as memory is read; more are worth packing.
template <class E>
inline constexpr std::int64_t kReadingRows = std::is_same_v<E, c10::BFloat16> ? 16 : 8;

/// True if a few rows meet dense columns, each of which is read once.
template <class T, class E>
[[nodiscard]] bool reads_columns(const Problem<T, E>& p) noexcept {
  const MatrixView<const E>& left = p.left.first;
  const bool dense = left.rows == 1 ? left.column_stride == 1 : left.row_major();
  return dense && p.rows() <= kReadingRows<E> && p.right.first.column_major() &&
         !p.options.sums_batch;
}

/// True if a right operand is so small that its elements stay in registers while rows meet it.
template <class E>
[[nodiscard]] bool is_narrow(const MatrixView<const E>& right) noexcept {
  return std::is_same_v<E, float> && right.rows <= kernels::gemm::kNarrowInner &&
         right.columns <= kernels::gemm::kNarrowColumns;
}

// True if blocks of rows use a right operand where it lies, which has few columns: nothing is
// packed twice, and what follows the product goes through whole rows of the result.
template <class T, class E>
bool suits_rows(const Problem<T, E>& p, std::int64_t pieces) {
  if (is_narrow(p.right.first)) return p.rows() >= pieces * kTileRows;
  return std::is_same_v<T, float> && p.columns() <= kMaxColumns && p.left.first.row_major() &&
         p.result.first.row_major() && p.rows() >= pieces * kTileRows &&
         is_used_in_place(p.right.first, p.rows() / pieces);
}

// Items of a batch that are a block, each of which is so many multiply-adds.
inline std::int64_t items_of_block(double item, std::int64_t batch) {
  const double blocks = std::min(item * static_cast<double>(batch) / kLeastBlock, kMostBlocks);
  if (blocks < 2) return batch;
  const std::int64_t even = static_cast<std::int64_t>(blocks) / 2 * 2;
  const auto most = static_cast<std::int64_t>(std::max(kBlock / item, 1.0));
  return std::min(ceil_div(batch, even), most);
}

// Multiply-adds of an item of the batch. A row of a narrow result takes as long as a vector of it,
// and to read and to store it as long as some inner elements.
template <class T, class E>
double work_of_item(const Problem<T, E>& p) {
  constexpr std::int64_t kVector = 16, kFewInner = 4;
  const bool narrow = is_narrow(p.right.first);
  const std::int64_t columns = narrow ? kVector : p.columns();
  const std::int64_t inner = narrow ? std::max(kFewInner, p.inner()) : p.inner();
  return static_cast<double>(p.rows()) * static_cast<double>(columns) * static_cast<double>(inner);
}

/// The blocks of `p`, whose operands lie as they will be multiplied.
template <class T, class E>
Block block_of(const Problem<T, E>& p) {
  constexpr bool kFloats = std::is_same_v<E, float>;
  const std::int64_t rows = p.rows(), columns = p.columns();
  const double speed = kFloats ? 1 : 2;
  const double item = work_of_item(p) / speed;
  const double work = item * static_cast<double>(p.batch);
  if (p.batch == 1 && reads_columns(p)) {
    // One reads the matrix from memory or a far cache, and once. Four rows take as long as that.
    const std::int64_t bytes = p.inner() * columns * static_cast<std::int64_t>(sizeof(E)) *
                               ceil_div<std::int64_t>(rows, 4);
    if (bytes <= kWholeMatrixBytes) return {1, rows, columns};
    const auto pieces = static_cast<std::uint64_t>(ceil_div(bytes, kVectorBlockBytes));
    return {1, rows, cut(columns, static_cast<std::int64_t>(std::bit_ceil(pieces)), kRowUnit)};
  }
  if (p.batch > 1 && !p.options.sums_batch &&
      (item < 2 * kLeastBlock || (p.batch >= 8 && item <= 4 * kBlock))) {
    return {items_of_block(item + kItemOverhead, p.batch), rows, columns};
  }
  if (work < 2 * kLeastBlock) return {p.batch, rows, columns};
  // Per item: two at least where there are few items.
  const double few = p.batch >= 8 && !p.options.sums_batch ? 1 : 2;
  const double share = p.options.sums_batch ? work : item;
  const auto wanted = static_cast<std::int64_t>(
      std::clamp(std::min(share / kLeastBlock, few + share / kBlock), 1.0, kMostBlocks));
  // Columns of a panel pack nothing twice. But each block of columns packs a left operand that lies
  // the wrong way again, or reads one of many rows from a far cache again.
  const bool wide = !p.left.first.row_major() || (!kFloats && rows >= 1024);
  const std::int64_t width = wide && columns > 8 * kPanel ? kMaxColumns : kPanel;
  // Two cores are done together with an even number of blocks of rows.
  const std::int64_t even = wanted / 2 * 2;
  const bool by_rows = even > 0 && !p.options.sums_batch && suits_rows(p, even);
  const std::int64_t across = by_rows ? 1 : std::min(wanted, ceil_div(columns, width));
  const std::int64_t down =
      by_rows ? even
              : std::clamp<std::int64_t>(
                    wanted / across, 1,
                    std::max<std::int64_t>(rows / kFewestRows, across == 1 ? 2 : 1));
  const std::int64_t products = p.options.sums_batch ? 1 : p.batch;
  std::int64_t width_of_block = cut(columns, across, kPanel);
  if (width_of_block < columns) {
    const std::int64_t unit = kFloats ? kRowUnit : kPanel;
    width_of_block = even_width(columns, width_of_block, down * products, unit);
  }
  const std::int64_t times = ceil_div(columns, width_of_block) * products;
  Block block{1, even_cut(rows, down, times), width_of_block};
  if (!kFloats && products == 1) {
    block = even_blocks(block, rows, columns, wanted, std::max<std::int64_t>(rows / kTileRows, 1));
  }
  if (p.options.sums_batch) block.items = p.batch;
  if (!std::is_same_v<T, float> || !p.result.first.row_major()) {
    if (p.inner() <= kMaxInner<E>) return block;
    block.rows = std::min(block.rows, kMaxAccumulators / kPanel);
    const std::int64_t panels = std::max<std::int64_t>(kMaxAccumulators / block.rows / kPanel, 1);
    block.columns = std::min(block.columns, panels * kPanel);
  }
  return block;
}

}  // namespace loom::ops::detail
