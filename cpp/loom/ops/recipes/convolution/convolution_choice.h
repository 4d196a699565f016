// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Two-dimensional convolutions that run as products of our own: with columns (product/convolve.h)
// or by Winograd's algorithm in either layout, tap by tap, run by run in channels_last, with pixels
// for rows in bfloat16. Chosen by shape, layout and dtype.
// Thread: the caller; both launch.

#include <ATen/core/Tensor.h>

namespace loom::ops {

struct WindowSteps {
  c10::IntArrayRef stride, padding, dilation;
};

/// True if it was launched. `bias` may be undefined; groups are 1, it is not transposed.
[[nodiscard]] bool launch_own_convolution(const at::Tensor& output, const at::Tensor& input,
                                          const at::Tensor& weight, const at::Tensor& bias,
                                          const WindowSteps& steps);

/// What is transposed: the gradient of the images of a convolution whose result `input` is, with a
/// bias. True if it was launched; there are some that launch_own_convolution_backward() has beside
/// these.
[[nodiscard]] bool launch_own_transposed(const at::Tensor& output, const at::Tensor& input,
                                         const at::Tensor& weight, const at::Tensor& bias,
                                         const WindowSteps& steps);

/// Which gradients launch_own_convolution_backward() launched.
struct OwnGradients {
  bool input = false, weight = false;
};

/// Gradients that are not wanted are undefined. Groups are 1, it is not transposed. `name`: what
/// profiles and errors call the command that makes the gradient of the images.
[[nodiscard]] OwnGradients launch_own_convolution_backward(
    const at::Tensor& input_gradient, const at::Tensor& weight_gradient, const at::Tensor& grad,
    const at::Tensor& input, const at::Tensor& weight, const WindowSteps& steps,
    const char* name = "convolution_backward");

}  // namespace loom::ops
