// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of pooling: kernels of our own for dense samples, else ATen's. Thread: any.

#include "loom/ops/aten/policy/samples.h"
#include "loom/ops/aten/structured.h"
#include "loom/ops/recipes/rows/pooling.h"

#include <optional>

namespace loom::ops {

struct MaxPool {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 2>& outputs,
                     const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
    const Pooling pooling{
        .dims = 2, .kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation};
    if (launch_largest(name, outputs[0], outputs[1], self, pooling)) return;
    launch_cpu<kCpu>(name, Samples<2>::split(outputs, self), outputs, self, kernel, stride, padding,
                     dilation, ceil_mode);
  }
};

/// Over kDims dimensions.
template <int kDims>
struct AveragePool {
  /// The last arguments are those of avg_pool2d, or numbers from its meta function.
  template <auto kCpu, class Divisor>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                     at::IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                     Divisor divisor) {
    const Pooling pooling{.dims = kDims,
                          .kernel = kernel,
                          .stride = stride,
                          .padding = padding,
                          .counts_padding = count_include_pad,
                          .divisor = divisor};
    if (launch_average(name, outputs[0], self, pooling)) return;
    launch_cpu<kCpu>(name, Samples<kDims>::split(outputs, self), outputs, self, kernel, stride,
                     padding, ceil_mode, count_include_pad, divisor);
  }
};

template <int kDims>
struct AveragePoolGradient {
  template <auto kCpu, class Divisor>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, const at::Tensor& self, at::IntArrayRef kernel,
                     at::IntArrayRef stride, at::IntArrayRef padding, bool ceil_mode,
                     bool count_include_pad, Divisor divisor) {
    const Pooling pooling{.dims = kDims,
                          .kernel = kernel,
                          .stride = stride,
                          .padding = padding,
                          .counts_padding = count_include_pad,
                          .divisor = divisor};
    if (launch_average_gradient(name, outputs[0], grad, pooling)) return;
    launch_cpu<kCpu>(name, Samples<kDims>::split(outputs, grad, self), outputs, grad, self, kernel,
                     stride, padding, ceil_mode, count_include_pad, divisor);
  }
};

}  // namespace loom::ops
