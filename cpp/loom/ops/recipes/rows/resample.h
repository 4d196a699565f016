// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Bilinear and nearest resampling of float32 samples of contiguous planes, with ATen's positions
// and weights: along the rows first, each row of the input once; then rows are mixed. Thread: any.

#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::ops {

/// How positions are found; as the operators' arguments.
struct Resampling {
  bool align_corners;
  std::optional<double> scale_y, scale_x;
};

/// Queues it if the tensors [batch, channels, y, x] are for this kernel.
[[nodiscard]] bool launch_bilinear(const char* name, const at::Tensor& result,
                                   const at::Tensor& input, const Resampling& resampling);

/// The same for the nearest element; `exact`: to the centre of the result's.
[[nodiscard]] bool launch_nearest(const char* name, const at::Tensor& result,
                                  const at::Tensor& input, bool exact,
                                  std::optional<double> scale_y, std::optional<double> scale_x);

/// The gradient of launch_bilinear()'s input.
[[nodiscard]] bool launch_bilinear_gradient(const char* name, const at::Tensor& result,
                                            const at::Tensor& grad, const Resampling& resampling);

/// The gradient of launch_nearest()'s input.
[[nodiscard]] bool launch_nearest_gradient(const char* name, const at::Tensor& result,
                                           const at::Tensor& grad, bool exact,
                                           std::optional<double> scale_y,
                                           std::optional<double> scale_x);

}  // namespace loom::ops
