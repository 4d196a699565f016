// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of few rows and few columns with many inner elements, as the gradient of a narrow
// layer's weight has: sums over parts of the inner dimension, which cores share, are added in their
// order. Blocks of the result would leave all of it to one core.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// Queues result = alpha * (left x right) + beta * addend; the addend may be undefined and may
/// broadcast. False if others have to do it. Thread: the caller's.
[[nodiscard]] bool launch_narrow_sums(const char* name, const at::Tensor& result,
                                      const at::Tensor& addend, const at::Tensor& left,
                                      const at::Tensor& right, double alpha = 1, double beta = 0);

}  // namespace loom::ops
