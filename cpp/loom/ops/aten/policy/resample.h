// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of resampling [batch, channels, ...]: channels of all samples do not meet. Thread: any.

#include "loom/ops/aten/policy/samples.h"
#include "loom/ops/recipes/rows/resample.h"

#include <array>
#include <type_traits>

namespace loom::ops {

/// ATen's kernels, cut along the batch, or along the planes of few samples.
struct Resample {
  // An element takes 2 to 7 ns. ATen's kernels make tables of indices and weights at each call,
  // which takes them some 5 us: blocks are longer than others.
  static constexpr double kCost = 1;

  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& input, const More&... more) {
    const at::Tensor& result = outputs[0];
    if (!are_planes(result, input)) {
      launch_cpu<kCpu>(name, split(result, input, 0), outputs, input, more...);
      return;
    }
    launch_cpu<kCpu>(name, split(result, input, 1), std::array{as_one_sample(result)},
                     as_one_sample(input), more...);
  }

  /// False for uint8: ATen chooses its kernel by the number of channels, and one of its kernels is
  /// wrong for a result of width 1.
  static bool are_planes(const at::Tensor& result, const at::Tensor& input) {
    return input.scalar_type() != c10::kByte && input.size(0) < 4 &&
           input.size(1) > input.size(0) && input.numel() > 0 && result.is_contiguous() &&
           input.is_contiguous();
  }
  /// Some planes of a sample have no gaps, some of several samples have.
  static at::Tensor as_one_sample(const at::Tensor& tensor) {
    return tensor.size(0) == 1 ? tensor : tensor.flatten(0, 1).unsqueeze(0);
  }
  static Along split(const at::Tensor& result, const at::Tensor& input, std::int8_t dim) {
    const auto elements = static_cast<double>(std::max(result.numel(), input.numel()));
    const std::int64_t items =
        std::max<std::int64_t>(dim == 0 ? input.size(0) : input.size(0) * input.size(1), 1);
    std::int64_t block = block_length(items, kCost * elements / static_cast<double>(items));
    // ATen takes a single plane for channels last, for which it has slower kernels.
    if (dim == 1) block = std::min(items, std::max<std::int64_t>(block, 2));
    return {.dims = {dim, dim}, .block = block};
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
    const at::Tensor& result = outputs[0];
    if (!Resample::are_planes(result, grad)) {
      ops::launch(name, Resample::split(result, grad, 0), kernel, out(result), grad, output_size,
                  input_size, more...);
      return;
    }
    ops::launch(name, Resample::split(result, grad, 1), kernel,
                out(Resample::as_one_sample(result)), Resample::as_one_sample(grad), output_size,
                input_size, more...);
  }
};

/// A kernel of our own for dense samples, else ATen's. `Argument`: whether corners are aligned, if
/// the mode knows that, and the scale of each dimension.
template <ResampleMode kMode>
struct Resampled {
  template <auto kCpu, class... Argument>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, at::IntArrayRef output_size, Argument... arguments) {
    const Arguments given = given_as(arguments...);
    if (launch_resampling(name, outputs[0], self, given.how())) return;
    Resample::launch<kCpu>(name, outputs, self, output_size, arguments...);
  }

  struct Arguments {
    bool align_corners = false;
    std::array<std::optional<double>, 3> scales;
    [[nodiscard]] Resampling how() const { return {kMode, align_corners, scales}; }
  };
  template <class... Scale>
  static Arguments given_as(bool align_corners, Scale... scales) {
    return {align_corners, {scales...}};
  }
  template <class... Scale>
  static Arguments given_as(std::optional<double> first, Scale... scales) {
    return {false, {first, scales...}};
  }
};

template <ResampleMode kMode>
struct ResampledGradient {
  template <auto kCpu, class... Argument>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, at::IntArrayRef output_size,
                     at::IntArrayRef input_size, Argument... arguments) {
    const auto given = Resampled<kMode>::given_as(arguments...);
    if (launch_resampling_gradient(name, outputs[0], grad, given.how())) return;
    ResampleGradient::launch<kCpu>(name, outputs, grad, output_size, input_size, arguments...);
  }
};

}  // namespace loom::ops
