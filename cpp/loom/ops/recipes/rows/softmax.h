// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Softmax and log-softmax over the last dimension of float and bfloat16 tensors, and their
// gradients. Thread: any.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// False, and nothing happened, if the rows are not for these kernels.
[[nodiscard]] bool launch_row_softmax(const char* name, bool log, const at::Tensor& result,
                                      const at::Tensor& self, std::int64_t dim);
[[nodiscard]] bool launch_row_softmax_gradient(const char* name, bool log, const at::Tensor& result,
                                               const at::Tensor& grad, const at::Tensor& output,
                                               std::int64_t dim);

}  // namespace loom::ops
