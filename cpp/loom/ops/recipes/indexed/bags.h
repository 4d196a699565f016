// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Bags of embeddings: rows of a table that an index names, as many as lie between two offsets, are
// summed up, averaged or searched for their largest elements. FBGEMM sums rows up, a block of bags
// at a time; where there are few bags, a block is a part of their columns. Thread: a worker.

#include "loom/ops/launch/launch.h"

#include <cstdint>

namespace loom::ops {

struct BagMode {
  static constexpr std::int64_t kSum = 0, kMean = 1, kMaximum = 2;

  std::int64_t mode = kSum;
  std::int64_t padding = -1;  ///< a row that does not count; negative: there is none
  bool has_last = false;      ///< whether the offsets end with the number of all indices
};

/// Those of _embedding_bag, all dense; bags_of_places has no elements if nobody wants it.
struct BagResults {
  const TensorRef &rows, &bags_of_places, &bag_sizes, &maxima;
};

/// Rows of the table (float32, bfloat16, float16) have stride 1; indices and offsets are dense and
/// of the same dtype; `scale`, for sums only, is dense or undefined. False if offsets or indices
/// are not what they should be; what is written is then nothing that counts.
[[nodiscard]] bool reduce_bags(Grid& grid, const BagResults& results, const TensorRef& table,
                               const TensorRef& indices, const TensorRef& offsets,
                               const TensorRef& scale, const BagMode& mode);

}  // namespace loom::ops
