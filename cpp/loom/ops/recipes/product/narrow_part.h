// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A block of a product whose right operand is so small that it stays in registers while rows are
// read where they lie and stored once: calls of the block kernel take longer than such rows.
// Thread: any; scratch memory is the calling thread's.

#include "loom/kernels/gemm/narrow_rows.h"
#include "loom/ops/recipes/product/product_part.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace loom::ops::detail {

/// A right operand as multiply_narrow() reads it, and what rows begin with.
struct NarrowRight {
  static constexpr std::int64_t kColumns = kernels::gemm::kNarrowColumns;

  explicit NarrowRight(const MatrixView<const float>& right) {
    for (std::int64_t k = 0; k < right.rows; ++k) {
      for (std::int64_t j = 0; j < right.columns; ++j) {
        elements[k * kColumns + j] = right.data[k * right.row_stride + j * right.column_stride];
      }
    }
  }
  float elements[kernels::gemm::kNarrowInner * kColumns] = {}, bias[kColumns] = {};
};

/// Rows of a block, some at a time: what becomes of them is done while they are near. Requires:
/// is_narrow().
template <class T>
void run_narrow(const Part<T, float>& whole, const Finish<T, float>& finish) {
  constexpr std::int64_t kRows = 256;
  const bool in_place = std::is_same_v<T, float> && whole.result.row_major();
  const bool plain = finish.activation == ProductActivation::kNone;
  const bool adds = whole.added() && !whole.continues && (in_place || whole.begins_with_addend());
  const bool biased = adds && is_bias(whole.addend, whole.beta);
  const std::int64_t columns = whole.result.columns;
  NarrowRight right(whole.right);
  if (biased) kernels::widen_row<Stored<T>>(right.bias, stored(whole.addend.data), columns);
  for (std::int64_t row = 0; row < whole.result.rows; row += kRows) {
    const Part<T, float> p = whole.cut(row, 0, std::min(kRows, whole.result.rows - row), columns);
    float* to = nullptr;
    std::int64_t ld = columns;
    if (in_place) {
      to = reinterpret_cast<float*>(p.result.data);
      ld = p.result.row_stride;
    } else {
      to = t_accumulators.get<float>(kRows * columns);
    }
    if (adds && !biased) initialise(p.addend, p.beta, to, ld);
    kernels::gemm::multiply_narrow({p.result.rows, p.left.columns, columns, p.left.data,
                                    p.left.row_stride, p.left.column_stride, right.elements, to, ld,
                                    biased ? right.bias : nullptr,
                                    p.continues || (adds && !biased)});
    if (!in_place) {
      finish_sums(p, adds, to, columns);
      store(to, p.result);
    }
    if (plain || !in_place) finish(p);
  }
  if (!plain && in_place) finish(whole);
}

}  // namespace loom::ops::detail
