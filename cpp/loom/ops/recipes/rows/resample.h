// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Nearest, linear and cubic resampling of samples of one to three dimensions, and their gradients,
// with ATen's positions and weights. Thread: any.

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>

namespace loom::ops {

enum class ResampleMode { kNearest, kNearestExact, kLinear, kCubic };

/// How positions are found; as the operators' arguments.
struct Resampling {
  ResampleMode mode;
  bool align_corners = false;
  std::span<const std::optional<double>> scales;  ///< of each dimension
};

/// Queues it if the tensors [batch, channels, ...] are for these kernels.
[[nodiscard]] bool launch_resampling(const char* name, const at::Tensor& result,
                                     const at::Tensor& input, const Resampling& resampling);

/// The gradient of launch_resampling()'s input.
[[nodiscard]] bool launch_resampling_gradient(const char* name, const at::Tensor& result,
                                              const at::Tensor& grad, const Resampling& resampling);

}  // namespace loom::ops
