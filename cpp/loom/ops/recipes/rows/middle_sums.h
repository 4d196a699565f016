// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums and means over dimensions in the middle of memory: of the pixels of each image in channels
// last, say. Thread: any.

#include "loom/ops/cuts/reduce.h"

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// Queues result = the sum or mean of `self`, if it is for this kernel: float32, bfloat16 or
/// float16 without gaps, with enough elements beside each other that stay apart, and not too many
/// that are added up.
[[nodiscard]] bool launch_middle_sums(const char* name, const at::Tensor& result,
                                      const at::Tensor& self, Reduced reduced, bool mean);

}  // namespace loom::ops
