// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products with so few inner elements that they take as long as their result takes to be written: a
// row is the sum of a few rows of the right operand, each times a number. Block kernels, which pack
// operands and go through sums once more, take two to three times as long.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// Queues result = left x right. False if others have to do it. Thread: the caller's.
[[nodiscard]] bool launch_thin_product(const char* name, const at::Tensor& result,
                                       const at::Tensor& left, const at::Tensor& right);

}  // namespace loom::ops
