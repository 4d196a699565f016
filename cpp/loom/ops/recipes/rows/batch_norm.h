// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Batch norm of float and bfloat16 tensors. Statistics are one command; the normalisation itself is
// recorded into the queue's program, so that what follows (relu, a residual sum) joins it. Tensors
// are as in native_batch_norm; parameters and running statistics may be undefined. Thread: any.

#include "loom/kernels/norm/channels.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::ops {

struct BatchNorm {
  const at::Tensor& input;
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& running_mean;
  const at::Tensor& running_var;
  double momentum, eps;
};

/// Memory for what the statistics become: factors of each channel.
struct BatchNormFactors {
  kernels::norm::ChannelLayout layout;
  at::Tensor rows;
};

/// Nothing, if the operands are not for these kernels. Memory of the output is asked for after
/// this: where the factors lay there may be the result of the next operator, which could not join
/// what still reads them.
[[nodiscard]] std::optional<BatchNormFactors> allocate_batch_norm_factors(const BatchNorm& norm,
                                                                          bool training,
                                                                          const at::Tensor& mean,
                                                                          const at::Tensor& invstd);

/// Launches what makes the factors, and records the normalisation. In training `mean` and `invstd`
/// are written, and the running statistics updated: by then all memory is there, so that a call
/// that runs out of it changes nothing. `output` lies as `input` does.
void record_batch_norm(const BatchNorm& norm, bool training, const at::Tensor& output,
                       const at::Tensor& mean, const at::Tensor& invstd,
                       const BatchNormFactors& factors);

struct BatchNormGradient {
  const at::Tensor& grad;
  const at::Tensor& input;
  const at::Tensor& weight;
  const at::Tensor& mean;    ///< that of the batch, or the running one
  const at::Tensor& spread;  ///< the saved inverse deviation in training, else the running variance
  bool training;
  double eps;
};

/// Launches what makes factors of the gradient, and returns those: nothing, and nothing happened,
/// if the operands are not for these kernels; undefined ones, if nobody asks for any. Results that
/// are undefined are not asked for. The input's gradient is allocated after this, as the output is.
[[nodiscard]] std::optional<at::Tensor> launch_batch_norm_gradient_factors(
    const BatchNormGradient& norm, bool wants_input, const at::Tensor& to_weight,
    const at::Tensor& to_bias);

/// Records the input's gradient.
void record_batch_norm_gradient(const at::Tensor& to_input, const BatchNormGradient& norm,
                                const at::Tensor& factors);

}  // namespace loom::ops
