// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// self[index]: items of the first dimension, which is how embeddings, batches and permutations are
// read. Tensors are dense.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/indexed/lines.h"

namespace loom::ops {

/// result[i] = self[index[i]]; negative places count from the end. False if one is not there;
/// nothing has been written then. Thread: a worker.
[[nodiscard]] bool read_rows(Grid& grid, const TensorRef& result, const TensorRef& self,
                             const TensorRef& index);

}  // namespace loom::ops
