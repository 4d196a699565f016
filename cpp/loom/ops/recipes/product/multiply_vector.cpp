// SPDX-License-Identifier: BSD-3-Clause
// Inner products of a vector, or of a few rows, with the rows of a matrix.
#include "loom/kernels/gemm/dot_rows.h"
#include "loom/kernels/gemm/few_rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>

namespace loom::ops {
namespace {

using c10::BFloat16;
using kernels::gemm::dot_four;
using kernels::gemm::dot_rows;
using kernels::gemm::FewRows;

}  // namespace

void multiply_vectors(const MatrixView<const float>& vectors, const MatrixView<const float>& matrix,
                      float* to, std::int64_t ld) {
  // Rows are taken in groups that stay in L2 while further vectors meet them.
  constexpr std::int64_t kGroup = 16;
  for (std::int64_t row = 0; row < matrix.rows; row += kGroup) {
    const auto group = matrix.part(row, 0, std::min(kGroup, matrix.rows - row), matrix.columns);
    std::int64_t v = 0;
    for (; v + 4 <= vectors.rows; v += 4) {
      dot_four(vectors.data + v * vectors.row_stride, vectors.row_stride, group.data,
               group.row_stride, group.rows, group.columns, to + v * ld + row, ld);
    }
    for (; v < vectors.rows; ++v) {
      dot_rows<float>(vectors.data + v * vectors.row_stride, group.data, group.row_stride,
                      group.rows, group.columns, to + v * ld + row);
    }
  }
}

template <>
void multiply_vector(const float* vector, const MatrixView<const float>& m, float* to) {
  dot_rows<float>(vector, m.data, m.row_stride, m.rows, m.columns, to);
}
template <>
void multiply_vector(const BFloat16* vector, const MatrixView<const BFloat16>& m, float* to) {
  dot_rows<simd::BFloat16>(stored(vector), stored(m.data), m.row_stride, m.rows, m.columns, to);
}

template <>
void multiply_few_rows(const MatrixView<const float>& left, const MatrixView<const float>& matrix,
                       float* to, std::int64_t ld) {
  kernels::gemm::multiply_few_rows<FewRows<float, float>>({left.rows, matrix.rows, left.columns,
                                                           left.data, left.row_stride, matrix.data,
                                                           matrix.row_stride, to, ld});
}
template <>
void multiply_few_rows(const MatrixView<const BFloat16>& left,
                       const MatrixView<const BFloat16>& matrix, float* to, std::int64_t ld) {
  using Product = FewRows<simd::BFloat16, simd::BFloat16>;
  const Product product{left.rows,
                        matrix.rows,
                        left.columns,
                        stored(left.data),
                        left.row_stride,
                        stored(matrix.data),
                        matrix.row_stride,
                        to,
                        ld};
  if (kernels::gemm::multiply_few_rows_bfloat16.available()) {
    kernels::gemm::multiply_few_rows_bfloat16(product);
  } else {
    kernels::gemm::multiply_few_rows<Product>(product);
  }
}
template <>
void multiply_few_rows(const MatrixView<const c10::Half>& left,
                       const MatrixView<const c10::Half>& matrix, float* to, std::int64_t ld) {
  kernels::gemm::multiply_few_rows<FewRows<simd::Half, simd::Half>>(
      {left.rows, matrix.rows, left.columns, stored(left.data), left.row_stride,
       stored(matrix.data), matrix.row_stride, to, ld});
}

}  // namespace loom::ops
