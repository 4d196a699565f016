// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of a few rows of floats with weights of one byte or half a byte, which are read where
// they lie and once for four rows. How they are cut depends on shapes only. Thread: the worker.

#include "loom/ops/launch/launch.h"

namespace loom::ops {

/// result = (left x the rows of `weight`) * scales, a scale for each column. Requires: contiguous;
/// left, scales and result of the same dtype (float32, bfloat16, float16), weight of int8.
void int8_product(Grid& grid, const TensorRef& result, const TensorRef& left,
                  const TensorRef& weight, const TensorRef& scales);

/// Columns of a block of weights that are read where they lie, `bytes` in all.
[[nodiscard]] std::int64_t weight_block(std::int64_t rows, std::int64_t columns, std::int64_t bytes,
                                        std::int64_t unit = 16);

/// How ATen's kernel has packed weights of four bits: depends on the processor.
struct Int4Packing {
  std::int64_t columns;  ///< of a block, but the last
  bool split;            ///< see kernels/gemm/int4_rows.h; the last, shorter one is not

  [[nodiscard]] static Int4Packing of_this_processor();
  /// Whether int4_product() takes left operands of the dtype.
  [[nodiscard]] bool takes(c10::ScalarType left) const;
};

/// The same with weights of _convert_weight_to_int4pack_for_cpu(), and scales [inner / group]
/// [columns] [scale, zero]. The result has the dtype of `scales`, `left` too or float32.
void int4_product(Grid& grid, const TensorRef& result, const TensorRef& left,
                  const TensorRef& weight, const TensorRef& scales, std::int64_t group,
                  Int4Packing packing);

}  // namespace loom::ops
