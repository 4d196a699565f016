// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/byte_rows.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/gemm/byte_rows.h"
#include "loom/ops/recipes/product/weight_only.h"

#include <algorithm>

namespace loom::ops {

bool multiplies_bytes_by_four() { return kernels::gemm::multiply_byte_rows_by_four.available(); }

void byte_rows_product(Grid& grid, const TensorRef& result, const TensorRef& left,
                       const TensorRef& right) {
  const std::int64_t rows = left.sizes()[0], inner = left.sizes()[1], all = right.sizes()[1];
  const std::int64_t block = weight_block(rows, all, inner * all);
  grid.run_by_any(ceil_div(all, block), [&](std::int64_t index) {
    const std::int64_t first = index * block;
    const kernels::gemm::ByteRows product{
        .rows = rows,
        .columns = std::min(block, all - first),
        .inner = inner,
        .left = reinterpret_cast<const std::int8_t*>(left.data()),
        .left_ld = left.strides()[0],
        .matrix = reinterpret_cast<const std::int8_t*>(right.data()) + first * right.strides()[1],
        .stride = right.strides()[1],
        .to = reinterpret_cast<std::int32_t*>(result.data()) + first,
        .ld = all};
    if (multiplies_bytes_by_four()) {
      kernels::gemm::multiply_byte_rows_by_four(product);
    } else {
      kernels::gemm::multiply_byte_rows(product);
    }
  });
}

}  // namespace loom::ops
