// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What is added to a product's sums before they are made, and how they become the result's
// elements. Thread: any; scratch memory is the calling thread's.

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/copy/rows.h"
#include "loom/kernels/gemm/bfloat16.h"
#include "loom/kernels/pool_resample/mix_rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/multiply.h"

#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace loom::ops::detail {

inline const Scratch t_turned;

template <class T>
at::Tensor alias(const MatrixView<T>& view) {
  const std::int64_t sizes[] = {view.rows, view.columns};
  const std::int64_t strides[] = {view.row_stride, view.column_stride};
  return make_alias(
      {.data = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(view.data)),
       .sizes = sizes,
       .strides = strides,
       .dtype = c10::CppTypeToScalarType<std::remove_const_t<T>>::value});
}

/// A row that is added to all rows.
template <class T>
bool is_bias(const MatrixView<const T>& addend, double beta) {
  return addend.row_stride == 0 && addend.column_stride == 1 && beta == 1;
}

/// The same of the transposed product: a column that is added to all columns.
template <class T>
bool is_turned_bias(const MatrixView<const T>& addend, double beta) {
  return addend.column_stride == 0 && beta == 1;
}

/// to[i * ld + j] = factor * rows[i][j]. Requires: dense rows.
template <class T>
void scale_rows(const MatrixView<const T>& rows, float factor, float* to, std::int64_t ld) {
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    const auto* const row = stored(rows.data + i * rows.row_stride);
    kernels::pool_resample::mix_to_floats<Stored<T>>(&row, &factor, 1, rows.columns, to + i * ld);
  }
}

// Puts beta * addend where the product will be added.
template <class T>
void initialise(const MatrixView<const T>& addend, double beta, float* to, std::int64_t ld) {
  if (is_bias(addend, beta)) {
    kernels::widen_row<Stored<T>>(to, stored(addend.data), addend.columns);
    return kernels::copy_rows<float>(addend.rows - 1, addend.columns, addend.columns, to, 0,
                                     to + ld, ld);
  }
  if (is_turned_bias(addend, beta)) {
    return kernels::spread_column(addend.rows, addend.columns, stored(addend.data),
                                  addend.row_stride, to, ld);
  }
  if (addend.column_stride == 1) {
    return scale_rows(addend, static_cast<float>(beta), to, ld);
  }
  const at::Tensor sum = alias(MatrixView<float>{to, addend.rows, addend.columns, ld, 1});
  sum.copy_(alias(addend));
  if (beta != 1) sum.mul_(beta);
}

// Puts accumulators where the result is.
template <class T>
void store(const float* from, const MatrixView<T>& result) {
  if (!result.row_major()) {
    const MatrixView<T> turned = result.transposed();
    if constexpr (std::is_same_v<T, float>) {
      transpose(result.rows, result.columns, from, result.columns, turned.data, turned.row_stride);
    } else {
      float* other = t_turned.get<float>(result.rows * result.columns);
      transpose(result.rows, result.columns, from, result.columns, other, result.rows);
      store(other, turned);
    }
    return;
  }
  const bool dense = result.row_stride == result.columns;
  const std::int64_t rows = dense ? 1 : result.rows;
  const std::int64_t columns = dense ? result.rows * result.columns : result.columns;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* const sums = from + i * columns;
    auto* const row = stored(result.data + i * result.row_stride);
    if constexpr (std::is_same_v<T, c10::BFloat16>) {
      if (kernels::gemm::store_sums.available()) {
        kernels::gemm::store_sums(sums, nullptr, columns, row);
        continue;
      }
    }
    kernels::round_row<Stored<T>>(row, sums, columns);
  }
}

}  // namespace loom::ops::detail
