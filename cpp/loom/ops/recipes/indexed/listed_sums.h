// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Gradients of tables that rows were taken from by an index: each row is the sum of the gradients
// of those who took it, computed as a whole, in float32, in the order of the index. Thread: a
// worker.

#include "loom/ops/launch/launch.h"

#include <cstdint>

namespace loom::ops {

/// What is added for each place of an index.
struct ListedRows {
  const TensorRef& rows;                 ///< dense matrix of float32, bfloat16 or float16
  const std::int64_t* row_of = nullptr;  ///< of each place; null: a row for each
  const float* factors = nullptr;        ///< of each place; null: 1
};

/// result[r] = the sum of what belongs to the places at which `index`, of int32 or int64, is r. No
/// row is `padding`, and what is no row at all is left out. `result` is dense and of the rows'
/// dtype.
void sum_listed_rows(Grid& grid, const TensorRef& result, const TensorRef& index,
                     const ListedRows& source, std::int64_t padding);

}  // namespace loom::ops
