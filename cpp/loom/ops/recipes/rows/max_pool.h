// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Max pooling by a kernel of our own. Thread: the caller's.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// False, and nothing happened, if the operands are not for it: float or bfloat16, contiguous
/// planes. The lists are max_pool2d's: one or two numbers, the stride none if it is the kernel's
/// size.
[[nodiscard]] bool launch_max_pool(const char* name, const at::Tensor& result,
                                   const at::Tensor& indices, const at::Tensor& input,
                                   at::IntArrayRef kernel, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation);

}  // namespace loom::ops
