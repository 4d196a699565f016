// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// index_add, index_copy, index_reduce and index_put of dense tensors. ATen's kernels make a tensor
// of each row, or of each column, which takes longer than the additions do.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/indexed/lines.h"

#include <c10/core/Scalar.h>

namespace loom::ops {

struct RowWrite {
  Combine how = Combine::kCopy;
  std::int64_t dim = 0;
  c10::Scalar factor = 1;   ///< of what is added
  bool counts_self = true;  ///< whether what was there counts
  bool wraps = false;       ///< whether negative places count from the end
};

/// Whether write_rows() can. Thread: any.
[[nodiscard]] bool can_write_rows(const RowWrite& write, const at::Tensor& result,
                                  const at::Tensor& self, const at::Tensor& index,
                                  const at::Tensor& source);

/// result = self, whose items along a dimension are then combined with those of `source`. False if
/// the index names one that is not there; nothing has been written then. Thread: a worker.
[[nodiscard]] bool write_rows(Grid& grid, const TensorRef& result, const TensorRef& self,
                              const TensorRef& index, const TensorRef& source,
                              const RowWrite& write);

/// The same for places that are there, along the lines that the tensors are. Requires: dense
/// tensors of the same dtype, and can_combine().
void write_rows(Grid& grid, const TensorRef& result, const TensorRef& self, const Places& places,
                const TensorRef& source, const Lines& lines, const RowWrite& write);

}  // namespace loom::ops
