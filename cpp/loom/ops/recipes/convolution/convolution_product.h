// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Convolutions whose filters have one weight a channel are matrix products, in either layout and
// with nothing to reorder. Thread: the caller's; each launches one or more commands.

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace loom::ops {

/// Stride 1, no padding.
[[nodiscard]] inline bool is_plain(c10::IntArrayRef stride, c10::IntArrayRef padding) noexcept {
  return std::all_of(stride.begin(), stride.end(), [](std::int64_t s) { return s == 1; }) &&
         std::all_of(padding.begin(), padding.end(), [](std::int64_t p) { return p == 0; });
}

/// Returns false and launches nothing if the operands do not suit. `bias` may be undefined.
/// Requires: not transposed, one group, is_plain(); `output` has its shape and layout.
bool convolve_as_product(const at::Tensor& output, const at::Tensor& input,
                         const at::Tensor& weight, const at::Tensor& bias);

/// As above; gradients that are not wanted are undefined.
bool convolve_backward_as_product(const at::Tensor& input_gradient,
                                  const at::Tensor& weight_gradient,
                                  const at::Tensor& bias_gradient, const at::Tensor& grad,
                                  const at::Tensor& input, const at::Tensor& weight);

/// The gradient of a bias: `grad` summed over all but its channels.
void sum_over_pixels(const at::Tensor& bias_gradient, const at::Tensor& grad);

}  // namespace loom::ops
