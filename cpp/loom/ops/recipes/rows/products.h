// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of elements, which go through rows or columns of memory in vectors, as sums do.

#include "loom/ops/cuts/reduce.h"

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// Queues it for dense tensors of float32 or a half type, of which what is reduced lies together.
/// False if ATen's kernel has to do it. Thread: the caller's.
[[nodiscard]] bool launch_products(const char* name, const at::Tensor& result,
                                   const at::Tensor& self, Reduced reduced);

}  // namespace loom::ops
