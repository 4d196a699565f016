// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of a matrix with a vector, in float32: of one that is transposed, whose columns are rows
// in memory that are read in order, and of rows, with AVX-512 or of float16. Thread: any.

#include "loom/ops/launch/launch.h"

#include <c10/core/Scalar.h>

namespace loom::ops {

/// result = beta * addend + alpha * matrix x vector. False if others have to do it. Requires: the
/// addend broadcasts to the result, or beta is 0: then it may be any tensor that is read anyway.
[[nodiscard]] bool launch_matrix_vector(const char* name, const at::Tensor& result,
                                        const at::Tensor& addend, const at::Tensor& matrix,
                                        const at::Tensor& vector, const c10::Scalar& beta,
                                        const c10::Scalar& alpha);

}  // namespace loom::ops
