// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tensors whose elements share memory with each other, as windows of an unfolded tensor do. A
// kernel that writes one is not cut: on cpu, too, the order of its writes decides what is left.
// Thread: any.

#include "loom/ops/launch/tensor_ref.h"

namespace loom::ops {

/// False only if no two elements are the same one: each dimension steps over all that those inside
/// it span.
[[nodiscard]] bool may_overlap_itself(c10::IntArrayRef sizes, c10::IntArrayRef strides);

[[nodiscard]] inline bool may_overlap_itself(const TensorRef& tensor) {
  return !tensor.is_dense() && may_overlap_itself(tensor.sizes(), tensor.strides());
}

}  // namespace loom::ops
