// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Batches of matrices so small that calling a library for each would take longer than multiplying
// them: rotations, cells, blocks of a sparse matrix. Thread: the caller's.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// result = beta * addend + alpha * left x right.
struct SmallProductOptions {
  double alpha = 1, beta = 0;  ///< the addend is not read if `beta` is 0
};

/// True if launch_small_products() is the way to run a batch of products: (batch, rows, inner) and
/// (batch, inner, columns), float32, float64, bfloat16 or float16, of any strides.
[[nodiscard]] bool suits_small_products(const at::Tensor& result, const at::Tensor& left,
                                        const at::Tensor& right);

/// Requires: suits_small_products(); the addend is undefined, or has the result's dtype and
/// broadcasts to it. It may be the result itself.
void launch_small_products(const char* name, const at::Tensor& result, const at::Tensor& addend,
                           const at::Tensor& left, const at::Tensor& right,
                           const SmallProductOptions& options);

}  // namespace loom::ops
