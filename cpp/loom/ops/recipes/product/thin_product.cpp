// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/thin_product.h"

#include "loom/base/blocks.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/gemm/weighted_rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <array>

namespace loom::ops {
namespace {

// Rows that weighted_rows adds at a time: for more a row of sums is gone through again.
constexpr std::int64_t kMostInner = 8;
// Shorter rows are no vectors, and of longer ones as many columns of the right operand stay in L1.
constexpr std::int64_t kLeastColumns = 64, kMostColumns = 1024;
// Rows of a block, each of which makes floats of its columns of the right operand.
constexpr std::int64_t kLeastRows = 32;
// Of an element, in the unit of Pointwise.
constexpr double kElementCost = 1;

struct Sizes {
  std::int64_t rows, inner, columns;
};

template <class T>
void widen_rows(const TensorRef& right, const Sizes& sizes, const Blocks::Range& columns,
                float* to) {
  const std::int64_t row = right.strides()[0], column = right.strides()[1];
  for (std::int64_t k = 0; k < sizes.inner; ++k, to += row_pitch(kMostColumns)) {
    const T* const from = elements<const T>(right) + k * row + columns.first * column;
    if (column == 1) {
      kernels::widen_row<T>(to, from, columns.count());
      continue;
    }
    for (std::int64_t c = 0; c < columns.count(); ++c) to[c] = simd::widen(from[c * column]);
  }
}

template <class T>
void multiply(Grid& grid, const TensorRef& result, const TensorRef& left, const TensorRef& right,
              const Sizes& sizes) {
  constexpr bool kFloats = std::is_same_v<T, float>;
  const Blocks across(sizes.columns, kMostColumns);
  const double cost = kElementCost * static_cast<double>(std::min(sizes.columns, kMostColumns));
  const Blocks down(sizes.rows, std::max(kLeastRows, block_length(sizes.rows, cost)));
  const std::int64_t row_step = left.strides()[0], step = left.strides()[1];
  grid.run_by_any(across.count() * down.count(), [&](std::int64_t index) {
    const auto columns = across[index % across.count()], rows = down[index / across.count()];
    float* const factors = row_scratch(kMostColumns, kMostInner + 1);
    float* const room = factors + kMostInner * row_pitch(kMostColumns);
    widen_rows<T>(right, sizes, columns, factors);
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      std::array<float, kMostInner> weights;
      const T* const numbers = elements<const T>(left) + row * row_step;
      for (std::int64_t k = 0; k < kMostInner; ++k) {
        weights[static_cast<std::size_t>(k)] = k < sizes.inner ? simd::widen(numbers[k * step]) : 0;
      }
      T* const to = elements<T>(result) + row * result.strides()[0] + columns.first;
      float* sums = room;
      if constexpr (kFloats) sums = to;
      std::fill_n(sums, columns.count(), 0.F);
      kernels::gemm::add_weighted_rows<float>(factors, row_pitch(kMostColumns), weights.data(),
                                              sizes.inner, columns.count(), sums);
      if constexpr (!kFloats) kernels::round_row<T>(to, sums, columns.count());
    }
  });
}

void start(Grid& grid, const TensorRef& result, const TensorRef& left, const TensorRef& right,
           Sizes sizes) {
  with_row_element(result.dtype(),
                   [&]<class T>() { multiply<T>(grid, result, left, right, sizes); });
}

}  // namespace

bool launch_thin_product(const char* name, const at::Tensor& result, const at::Tensor& left,
                         const at::Tensor& right) {
  const c10::ScalarType dtype = result.scalar_type();
  if (result.dim() != 2 || !is_row_element(dtype)) return false;
  for (const at::Tensor* tensor : {&left, &right, &result}) {
    if (tensor->scalar_type() != dtype || tensor->is_neg() || tensor->_is_zerotensor()) {
      return false;
    }
  }
  const Sizes sizes{result.size(0), left.size(1), result.size(1)};
  if (sizes.inner < 1 || sizes.inner > kMostInner || sizes.columns < kLeastColumns ||
      sizes.rows < kLeastRows || !result.is_contiguous()) {
    return false;
  }
  launch(name, Custom{}, start, out(result), left, right, sizes);
  return true;
}

}  // namespace loom::ops
