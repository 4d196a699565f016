// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Convolutions by ATen's CPU operators, oneDNN's kernels most of all, on parts of the batch or of
// the channels. Thread: the worker.

#include "loom/ops/cuts/convolution_cut.h"
#include "loom/ops/launch/launch.h"

#include <ATen/DimVector.h>

#include <cstdint>

namespace loom::ops {

/// What the arguments of a convolution have in common in both directions.
struct ConvolutionParameters {
  at::DimVector stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;
  /// PyTorch chooses oneDNN for the call: so do its parts, which by themselves may be too small.
  bool onednn = false;
};

/// `points`: has_points() of the output.
void convolve_blocks(Grid& grid, const TensorRef& output, const TensorRef& input,
                     const TensorRef& weight, const TensorRef& bias, const ConvolutionParameters& p,
                     ConvolutionCut cut, bool points);

/// Gradients that are not wanted are undefined.
void convolve_backward_blocks(Grid& grid, const TensorRef& input_gradient,
                              const TensorRef& weight_gradient, const TensorRef& bias_gradient,
                              const TensorRef& grad, const TensorRef& input,
                              const TensorRef& weight, const ConvolutionParameters& p,
                              ConvolutionCut cut);

}  // namespace loom::ops
