// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Operators on half types that nothing multiplies as such: computed in float32, and rounded once.
// Thread: the caller.

#include "loom/ops/recipes/product/multiply.h"

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// Whether an operator on `operand` is to be computed in float32: multiplies_in_floats(), and
/// nothing would compute float32 in fewer bits.
[[nodiscard]] inline bool computes_in_floats(const at::Tensor& operand,
                                             ProductsOf use = ProductsOf::kMatrices) {
  return multiplies_in_floats(operand.scalar_type()) && can_multiply<float>(use);
}

/// A tensor in float32, in the same order; one that is not defined stays so.
[[nodiscard]] inline at::Tensor in_floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(c10::kFloat) : tensor;
}

}  // namespace loom::ops
