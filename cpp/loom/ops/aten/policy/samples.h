// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of windows over images (pooling, resampling, padding), cut along the batch, or along the
// channels of a single sample. Thread: any.

#include "loom/ops/aten/structured.h"

#include <algorithm>

namespace loom::ops {

/// Neither samples nor channels meet; kSpatial dimensions follow them. kTenths is the cost of one
/// element in tenths.
template <int kSpatial, int kTenths = 20>
struct Samples {
  template <std::size_t kOutputs, class... Argument>
  static Along split(const std::array<at::Tensor, kOutputs>& outputs, const at::Tensor& input,
                     const Argument&... arguments) {
    const auto elements = static_cast<double>(std::max(outputs[0].numel(), input.numel()));
    // Channels are planes of their own only where they do not alternate in memory.
    const bool channels = input.dim() == kSpatial + 2 && input.size(0) == 1 &&
                          outputs[0].is_contiguous() && input.is_contiguous() &&
                          (is_contiguous(arguments) && ...);
    const int dim = channels ? 1 : 0;
    Along along{.cost = kTenths / 10.0 * elements /
                        static_cast<double>(std::max<std::int64_t>(input.size(dim), 1))};
    along.dims.fill(static_cast<std::int8_t>(dim));
    return along;
  }

 private:
  static bool is_contiguous(const at::Tensor& tensor) { return tensor.is_contiguous(); }
  template <class T>
  static bool is_contiguous(const T&) {
    return true;
  }
};

/// The CPU kernels of paddings give a new result the memory format of the images. They copy runs of
/// elements, at 0.1 ns each.
template <int kSpatial>
struct Padding : Samples<kSpatial, 3> {
  static constexpr std::size_t kFormatOf = 0;
};
/// (grad_output, self, ...)
template <int kSpatial>
struct PaddingGradient : Samples<kSpatial, 3> {
  static constexpr std::size_t kFormatOf = 1;
};

}  // namespace loom::ops
