// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/narrow_sums.h"

#include "loom/base/blocks.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/gemm/narrow_sums.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/self_overlap.h"
#include "loom/ops/recipes/product/product_blocks.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

namespace loom::ops {
namespace {

using kernels::gemm::kMaxNarrowSums;

constexpr std::int64_t kSums = kMaxNarrowSums * kMaxNarrowSums;
// Of fewer inner elements packing takes no time.
constexpr std::int64_t kLeastInner = 512, kLeastPart = 1024;
// Of a row of both matrices, and of each element of the narrower one, in the unit of Pointwise.
constexpr double kRowCost = 3, kFactorCost = 0.6;
// Rows of half types that become float32 at a time, near the core.
constexpr std::int64_t kWidenedRows = 256;

struct Factors {
  float alpha, beta;
};

/// Two matrices with a row for each inner element. `right` has dense rows.
template <class T>
struct Pair {
  MatrixView<const T> left, right;
  bool swapped;  ///< `left` has the columns of the result
};

/// The wider one is read in vectors, if it has dense rows: one that is expanded has not.
template <class T>
Pair<T> pair_of(const MatrixView<const T>& left, const MatrixView<const T>& right) {
  const bool left_wide = left.rows > right.columns;
  const bool swaps = !right.row_major() || (left_wide && left.column_major());
  if (swaps) return {right, left.transposed(), true};
  return {left.transposed(), right, false};
}

void add_rows(const Pair<float>& p, const Blocks::Range& rows, float* to) {
  const auto left = p.left.part(rows.first, 0, rows.count(), p.left.columns);
  const auto right = p.right.part(rows.first, 0, rows.count(), p.right.columns);
  kernels::gemm::add_narrow_sums({left.rows, left.columns, right.columns, left.data,
                                  left.row_stride, left.column_stride, right.data, right.row_stride,
                                  to});
}

template <class T>
MatrixView<const float> widened(const MatrixView<const T>& from, const Blocks::Range& rows,
                                float* to) {
  const std::int64_t columns = from.columns;
  const bool dense = from.row_stride == columns;
  for (std::int64_t row = rows.first; row < rows.last; row += dense ? rows.count() : 1) {
    kernels::widen_row<Stored<T>>(to + (row - rows.first) * columns,
                                  stored(from.data + row * from.row_stride),
                                  dense ? rows.count() * columns : columns);
  }
  return {to, rows.count(), columns, columns, 1};
}

template <class T>
void add_rows(const Pair<T>& p, const Blocks::Range& rows, float* to) {
  float* const scratch = row_scratch(kWidenedRows * kMaxNarrowSums, 2);
  float* const other = scratch + row_pitch(kWidenedRows * kMaxNarrowSums);
  for (std::int64_t row = rows.first; row < rows.last; row += kWidenedRows) {
    const Blocks::Range some{row, std::min(row + kWidenedRows, rows.last)};
    add_rows(Pair<float>{widened(p.left, some, scratch), widened(p.right, some, other), p.swapped},
             {0, some.count()}, to);
  }
}

template <class T>
void put_sums(const float* sums, bool swapped, const MatrixView<T>& result,
              const MatrixView<const T>& addend, Factors by) {
  for (std::int64_t i = 0; i < result.rows; ++i) {
    for (std::int64_t j = 0; j < result.columns; ++j) {
      float sum = by.alpha * sums[swapped ? j * kMaxNarrowSums + i : i * kMaxNarrowSums + j];
      if (addend.data != nullptr && by.beta != 0) {
        sum += by.beta * simd::widen(*stored(addend.part(i, j, 1, 1).data));
      }
      simd::round_to(*stored(result.part(i, j, 1, 1).data), sum);
    }
  }
}

template <class T>
void multiply(Grid& grid, const TensorRef& result, const TensorRef& addend, const TensorRef& left,
              const TensorRef& right, Factors by) {
  const Pair<T> pair =
      pair_of(detail::operand<const T>(left).first, detail::operand<const T>(right).first);
  const std::int64_t inner = pair.left.rows;
  const double cost = kRowCost + kFactorCost * static_cast<double>(pair.left.columns);
  const Blocks parts(inner, std::max(kLeastPart, block_length(inner, cost)));
  std::vector<float> sums(static_cast<std::size_t>(parts.count() * kSums));
  grid.run_by_any(parts.count(), [&](std::int64_t index) {
    add_rows(pair, parts[index], sums.data() + index * kSums);
  });
  for (std::int64_t part = 1; part < parts.count(); ++part) {
    for (std::int64_t i = 0; i < kSums; ++i) {
      sums[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(part * kSums + i)];
    }
  }
  const auto added =
      addend.defined() ? detail::broadcast<T>(addend, result).first : MatrixView<const T>{};
  put_sums(sums.data(), pair.swapped, detail::operand<T>(result).first, added, by);
}

void start(Grid& grid, const TensorRef& result, const TensorRef& addend, const TensorRef& left,
           const TensorRef& right, Factors by) {
  with_floats(result.dtype(),
              [&]<class T>(T) { multiply<T>(grid, result, addend, left, right, by); });
}

}  // namespace

bool launch_narrow_sums(const char* name, const at::Tensor& result, const at::Tensor& addend,
                        const at::Tensor& left, const at::Tensor& right, double alpha,
                        double beta) {
  const c10::ScalarType dtype = result.scalar_type();
  if (result.dim() != 2 || result.numel() == 0 || left.size(1) < kLeastInner ||
      result.size(0) > kMaxNarrowSums || result.size(1) > kMaxNarrowSums ||
      !is_row_element(dtype)) {
    return false;
  }
  for (const at::Tensor* tensor : {&left, &right, &result}) {
    if (tensor->scalar_type() != dtype || tensor->is_neg() || tensor->_is_zerotensor()) {
      return false;
    }
  }
  const bool left_dense = left.stride(0) == 1 && left.stride(1) >= left.size(0);
  const bool right_dense = right.stride(1) == 1 && right.stride(0) >= right.size(1);
  const bool floats = dtype == c10::kFloat;
  if (!(floats ? left_dense || right_dense : left_dense && right_dense) ||
      !(floats ? can_multiply<float>() : can_multiply<c10::Half>()) ||
      may_overlap_itself(result.sizes(), result.strides())) {
    return false;
  }
  launch(name, Custom{}, start, out(result), addend, left, right,
         Factors{static_cast<float>(alpha), static_cast<float>(beta)});
  return true;
}

}  // namespace loom::ops
