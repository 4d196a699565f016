// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of resampling [batch, channels, ...]: channels of all samples do not meet. Thread: any.

#include "loom/ops/aten/policy/samples.h"
#include "loom/ops/recipes/rows/resample.h"

namespace loom::ops {

/// Cut along the batch, or along the channels of few samples.
struct Resample {
  // An element takes 2 to 7 ns. ATen's kernels make tables of indices and weights at each call,
  // which takes them some 5 us: blocks are longer than others.
  static constexpr double kCost = 1;

  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& input) {
    const bool by_channel = input.size(0) < 4 && input.size(1) > input.size(0);
    const std::int8_t dim = by_channel ? 1 : 0;
    const auto elements = static_cast<double>(std::max(outputs[0].numel(), input.numel()));
    const auto items = static_cast<double>(std::max<std::int64_t>(input.size(dim), 1));
    return {.dims = {dim, dim}, .cost = kCost * elements / items};
  }

  template <class... Argument>
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& input,
                     const Argument&...) {
    return split(outputs, input);
  }
};

/// Gradients, whose kernels are told the size of their result: a block's is its own.
struct ResampleGradient {
  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, at::IntArrayRef output_size,
                     at::IntArrayRef input_size, const More&... more) {
    const auto kernel = [](const at::Tensor& result, const at::Tensor& from, at::IntArrayRef size,
                           at::IntArrayRef, const More&... others) {
      const KeptForm form(result);
      kCpu(from, size, result.sizes(), others..., const_cast<at::Tensor&>(result));
      form.restore();
    };
    ops::launch(name, Resample::split(outputs, grad), kernel, out(outputs[0]), grad, output_size,
                input_size, more...);
  }
};

/// A kernel of our own for contiguous planes, else ATen's.
struct Bilinear {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, at::IntArrayRef output_size, bool align_corners,
                     std::optional<double> scale_y, std::optional<double> scale_x) {
    if (launch_bilinear(name, outputs[0], self, {align_corners, scale_y, scale_x})) return;
    launch_cpu<kCpu>(name, Resample::split(outputs, self), outputs, self, output_size,
                     align_corners, scale_y, scale_x);
  }
};

template <bool kExact>
struct Nearest {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, at::IntArrayRef output_size,
                     std::optional<double> scale_y, std::optional<double> scale_x) {
    if (launch_nearest(name, outputs[0], self, kExact, scale_y, scale_x)) return;
    launch_cpu<kCpu>(name, Resample::split(outputs, self), outputs, self, output_size, scale_y,
                     scale_x);
  }
};

struct BilinearGradient {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, at::IntArrayRef output_size,
                     at::IntArrayRef input_size, bool align_corners, std::optional<double> scale_y,
                     std::optional<double> scale_x) {
    if (launch_bilinear_gradient(name, outputs[0], grad, {align_corners, scale_y, scale_x})) return;
    ResampleGradient::launch<kCpu>(name, outputs, grad, output_size, input_size, align_corners,
                                   scale_y, scale_x);
  }
};

template <bool kExact>
struct NearestGradient {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, at::IntArrayRef output_size,
                     at::IntArrayRef input_size, std::optional<double> scale_y,
                     std::optional<double> scale_x) {
    if (launch_nearest_gradient(name, outputs[0], grad, kExact, scale_y, scale_x)) return;
    ResampleGradient::launch<kCpu>(name, outputs, grad, output_size, input_size, scale_y, scale_x);
  }
};

}  // namespace loom::ops
