// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of a few rows of int8 with weights as they lie, exact in int32. How they are cut depends
// on shapes only. Thread: the worker.

#include "loom/ops/launch/launch.h"

namespace loom::ops {

/// Whether the processor multiplies and adds four bytes at once.
[[nodiscard]] bool multiplies_bytes_by_four();

/// result = left x right, modulo 2^32. Requires: `result` contiguous, rows of `left` and columns of
/// `right` dense.
void byte_rows_product(Grid& grid, const TensorRef& result, const TensorRef& left,
                       const TensorRef& right);

}  // namespace loom::ops
