// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Convolutions whose operands are changed before they are computed. Thread: the caller.

#include "loom/base/ceil_div.h"
#include "loom/ops/recipes/convolution/convolution_blocks.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace loom::ops {

/// Where oneDNN's kernels are not to be called with operands as they are. Those whose channels lie
/// last read and write what is not theirs if a window may see nothing but padding. Gradients of
/// weights of bfloat16 are wrong then, and where windows are deeper than images, or twice as high
/// or wide, or have a tap that sees nothing in any of its places. Kernels of floats whose channels
/// are planes are right.
struct Detour {
  bool planes = false;            ///< all operands as planes
  bool floats = false;            ///< results, unless kernels of our own make them
  bool floats_of_weight = false;  ///< and the gradients of weights and bias in floats

  /// `images` and `windows` are what a convolution that is not transposed has as input and output.
  Detour(const at::Tensor& images, const at::Tensor& windows, const at::Tensor& weight,
         const ConvolutionParameters& p) {
    bool large = false;
    for (std::int64_t d = 2; d < images.dim(); ++d) {
      const auto i = static_cast<std::size_t>(d - 2);
      const std::int64_t size = images.size(d), extent = (weight.size(d) - 1) * p.dilation[i];
      const std::int64_t last = (windows.size(d) - 1) * p.stride[i] - p.padding[i];
      const bool is_depth = images.dim() == 5 && d == 2;
      planes |= p.padding[i] > extent || last >= size;
      // Taps that are farther apart than the image is wide may step over it.
      for (std::int64_t w = 0; p.dilation[i] > size && w < windows.size(d); ++w) {
        const std::int64_t begin = w * p.stride[i] - p.padding[i];
        const std::int64_t tap = std::max<std::int64_t>(ceil_div(-begin, p.dilation[i]), 0);
        planes |= tap >= weight.size(d) || begin + tap * p.dilation[i] >= size;
      }
      floats |= windows.size(d) == 1 && p.stride[i] > 1 && images.scalar_type() == c10::kBFloat16;
      large |= extent >= (is_depth ? size : 2 * size);
      for (std::int64_t tap = 0; tap < weight.size(d); ++tap) {
        const std::int64_t first = tap * p.dilation[i] - p.padding[i];
        const std::int64_t window = std::max<std::int64_t>(ceil_div(-first, p.stride[i]), 0);
        large |= window >= windows.size(d) || first + window * p.stride[i] >= size;
      }
    }
    floats_of_weight = images.scalar_type() == c10::kBFloat16 && (planes || large);
  }
};

}  // namespace loom::ops
