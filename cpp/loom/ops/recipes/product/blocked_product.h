// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// result = activation(beta * addend + alpha * left x right) for matrices and batches of them, as a
// grid of rectangles of the result. What several of them need may be packed or transposed before,
// by all cores. Thread: the second function on the worker, the others on the caller.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/multiply.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace loom::ops {

enum class ProductActivation : std::uint8_t { kNone, kRelu, kGelu };

struct ProductOptions {
  double beta = 0;   ///< the addend is not read if 0
  double alpha = 1;  ///< of float32: 1
  ProductActivation activation = ProductActivation::kNone;
  /// The result of a batch is the sum of its products: its first stride is 0. Requires: float32,
  /// row-major, no addend.
  bool sums_batch = false;
};

/// True if blocked_product() is the way to run it: float32, bfloat16 or float16, layouts that it
/// can pack, neither vectors nor tiny.
[[nodiscard]] bool suits_blocked_product(const at::Tensor& result, const at::Tensor& left,
                                         const at::Tensor& right,
                                         ProductsOf use = ProductsOf::kMatrices);

/// Requires: suits_blocked_product(); the addend is undefined or broadcasts to the result. It may
/// be the result itself.
void blocked_product(Grid& grid, const TensorRef& result, const TensorRef& addend,
                     const TensorRef& left, const TensorRef& right, ProductOptions options);

/// Queues blocked_product(), with what it requires. One that is long enough for that is open for
/// operators on its result (launch_open()).
void launch_blocked_product(const char* name, const at::Tensor& result, const at::Tensor& addend,
                            const at::Tensor& left, const at::Tensor& right,
                            ProductOptions options);

}  // namespace loom::ops
