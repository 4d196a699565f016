// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What follows from the kernel that PyTorch would choose for a convolution of tensors of the cpu.
// Operands may be of any device, as only their metadata are looked at. Thread: any.

#include "loom/ops/recipes/convolution/convolution_blocks.h"

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// For parts of a convolution, which have the kernel of the whole. PyTorch leaves volumes of few
/// channels and rows to loops, which take several times as long as oneDNN; transposed ones stay
/// there, as oneDNN has not all that may be padded.
[[nodiscard]] ConvolutionParameters for_parts(const at::Tensor& input, const at::Tensor& weight,
                                              const ConvolutionParameters& p);

/// Whether a result is channels last, as those of CPU convolutions are: images if the input or the
/// weight is, volumes where the kernel that PyTorch would choose follows them.
[[nodiscard]] bool is_channels_last(const at::Tensor& input, const at::Tensor& weight,
                                    const ConvolutionParameters& p);

/// Throws PyTorch's error for a negative size of the result, [batch, channels, ...], of which the
/// padding has left nothing.
void check_sizes(c10::IntArrayRef input, c10::IntArrayRef result);

/// Throws what PyTorch's loops throw for a result without elements. oneDNN's kernels give it.
void check_empty_result(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                        const ConvolutionParameters& p);

}  // namespace loom::ops
