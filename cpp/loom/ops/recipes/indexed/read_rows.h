// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// self[index]: items of the first dimension, which is how embeddings, batches and permutations are
// read, and of another one. Tensors are dense.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/indexed/lines.h"

namespace loom::ops {

/// result[i] = self[index[i]]; negative places count from the end. False if one is not there;
/// nothing has been written then. Thread: a worker.
[[nodiscard]] bool read_rows(Grid& grid, const TensorRef& result, const TensorRef& self,
                             const TensorRef& index);

/// Items of `self` along the dimension of `lines`, whose `inner` is in bytes. The index of int32 or
/// int64 is dense: one for all outer items, or one for each. False if one is not there; what is
/// written is then nothing that counts. Thread: a worker.
[[nodiscard]] bool read_items(Grid& grid, const TensorRef& result, const TensorRef& self,
                              const TensorRef& index, const Lines& lines);

}  // namespace loom::ops
