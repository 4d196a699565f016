// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Variances and means of rows, of columns and of planes of a dense tensor of float32 or a half
// type. The order of a sum follows from the shape alone. Thread: any.

#include "loom/ops/cuts/reduce.h"

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// Queues it if it is one of these. `mean` may be undefined; results are of the dtype of `input` or
/// float.
[[nodiscard]] bool launch_variances(const char* name, const at::Tensor& variance,
                                    const at::Tensor& mean, const at::Tensor& input,
                                    Reduced reduced, double correction, bool root);

}  // namespace loom::ops
