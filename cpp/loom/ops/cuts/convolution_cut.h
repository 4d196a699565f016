// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How a convolution is cut into blocks: along the batch, or along channels. ATen's kernels reorder
// what they are given whole each time: the weights in a block of the batch, the other side's
// activations in a block of channels; so the smaller of the two decides, and how often.
// Thread: any; shapes are all that is looked at.

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace loom::ops {

struct ConvolutionCut {
  std::int64_t items, block;
  bool channels;  ///< of the output in a forward, of the input in a backward; else the batch

  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(items, block); }
  [[nodiscard]] at::Tensor part(const TensorRef& whole, int dim, std::int64_t index) const {
    if (!whole.defined()) return {};
    const std::int64_t begin = index * block;
    return whole.alias_slice(dim, begin, std::min(block, items - begin));
  }
};

/// Requires: `input` and `output` have a batch dimension.
[[nodiscard]] ConvolutionCut cut_forward(const at::Tensor& output, const at::Tensor& input,
                                         const at::Tensor& weight, bool transposed,
                                         std::int64_t groups);

/// `with_parameters`: gradients of the weight or the bias are asked for.
[[nodiscard]] ConvolutionCut cut_backward(const at::Tensor& grad, const at::Tensor& input,
                                          const at::Tensor& weight, bool transposed,
                                          std::int64_t groups, bool with_parameters);

}  // namespace loom::ops
