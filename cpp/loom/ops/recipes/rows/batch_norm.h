// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Batch norm of float and bfloat16 tensors. Statistics are one command; the normalisation itself is
// recorded into the queue's program, so that what follows (relu, a residual sum) joins it. Tensors
// are as in native_batch_norm; parameters and running statistics may be undefined. Thread: any.

#include <ATen/core/Tensor.h>

namespace loom::ops {

struct BatchNorm {
  const at::Tensor& input;
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& running_mean;
  const at::Tensor& running_var;
  double momentum, eps;
};

/// False, and nothing happened, if the operands are not for these kernels. In training `mean` and
/// `invstd` are written, and the running statistics updated.
[[nodiscard]] bool record_batch_norm(const BatchNorm& norm, bool training, const at::Tensor& output,
                                     const at::Tensor& mean, const at::Tensor& invstd);

struct BatchNormGradient {
  const at::Tensor& grad;
  const at::Tensor& input;
  const at::Tensor& weight;
  const at::Tensor& mean;    ///< that of the batch, or the running one
  const at::Tensor& spread;  ///< the saved inverse deviation in training, else the running variance
  bool training;
  double eps;
};

/// As record_batch_norm(). Results that are undefined are not asked for.
[[nodiscard]] bool record_batch_norm_gradient(const BatchNormGradient& norm,
                                              const at::Tensor& to_input,
                                              const at::Tensor& to_weight,
                                              const at::Tensor& to_bias);

}  // namespace loom::ops
