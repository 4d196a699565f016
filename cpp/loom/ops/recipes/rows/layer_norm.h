// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Layer norm of float and bfloat16 rows, and its gradients. All operands are contiguous and have
// the shapes of native_layer_norm; parameters may be undefined. Thread: any.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// False, and nothing happened, if the rows are not for these kernels.
[[nodiscard]] bool launch_row_layer_norm(const at::Tensor& output, const at::Tensor& mean,
                                         const at::Tensor& rstd, const at::Tensor& input,
                                         const at::Tensor& weight, const at::Tensor& bias,
                                         std::int64_t rows, std::int64_t columns, double eps);

/// Gradients that are undefined are not asked for.
[[nodiscard]] bool launch_row_layer_norm_gradient(const at::Tensor& to_input,
                                                  const at::Tensor& to_weight,
                                                  const at::Tensor& to_bias, const at::Tensor& grad,
                                                  const at::Tensor& input, const at::Tensor& mean,
                                                  const at::Tensor& rstd, const at::Tensor& weight,
                                                  std::int64_t rows, std::int64_t columns);

}  // namespace loom::ops
