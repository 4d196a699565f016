// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Convolutions that pointwise operators may follow in the same command (launch_open.h). Their
// result is a matrix: of planes, with a row for each channel of each image, or, in channels_last,
// of points, with a row for each pixel. Thread: the last function on the worker and the cores, the
// others on the caller.

#include "loom/ops/cuts/convolution_cut.h"
#include "loom/ops/launch/launch_open.h"

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace loom::ops {

[[nodiscard]] inline bool has_points(const at::Tensor& output) {
  return !output.is_contiguous() && (output.is_contiguous(c10::MemoryFormat::ChannelsLast) ||
                                     output.is_contiguous(c10::MemoryFormat::ChannelsLast3d));
}

/// Nothing for results that lie otherwise.
[[nodiscard]] inline std::optional<MatrixShape> result_shape(const at::Tensor& output) {
  if (output.dim() < 3 || !fusion_dtype(output.scalar_type())) return {};
  const std::int64_t channels = output.size(1), planes = output.size(0) * channels;
  if (output.is_contiguous()) return MatrixShape{planes, output.numel() / planes};
  if (has_points(output)) return MatrixShape{output.numel() / channels, channels};
  return {};
}

/// Queues kernel(grid, output, input, weight, more...), open if that takes long enough.
/// Requires: the output has elements.
template <class Kernel, class... More>
void launch_convolution(Kernel kernel, const at::Tensor& output, const at::Tensor& input,
                        const at::Tensor& weight, More&&... more) {
  const double work = static_cast<double>(output.numel()) * static_cast<double>(weight.numel()) /
                      static_cast<double>(weight.size(0));
  const bool open = may_be_joined(output.device(), work);
  const auto shape = open ? result_shape(output) : std::nullopt;
  if (shape) {
    launch_open("convolution", *shape, std::move(kernel), out(output), input, weight,
                std::forward<More>(more)...);
  } else {
    launch("convolution", Custom{}, std::move(kernel), out(output), input, weight,
           std::forward<More>(more)...);
  }
}

/// Block `index` of `cut` is final: some images of the result, or some channels of all.
/// `points`: has_points() of it.
void finish_block(const Grid& grid, const TensorRef& output, bool points, const ConvolutionCut& cut,
                  std::int64_t index);

}  // namespace loom::ops
