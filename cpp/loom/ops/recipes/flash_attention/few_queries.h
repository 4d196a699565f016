// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Attention of a few queries over many keys, as decoding has it: keys and values are read once for
// all queries of a head, or of a group of heads that share them, where they lie, and the keys of a
// head are cut into parts for all cores. Operands as flash_attention.h has them, but that there may
// be fewer heads of keys and values than of queries. Thread: the kernel is for launch().

#include "loom/ops/launch/launch.h"

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// True if attend_few_queries() takes the operands, and is the fastest way: dense elements of
/// float32, bfloat16 or float16, and a few queries for each head of keys.
[[nodiscard]] bool suits_few_queries(const at::Tensor& query, const at::Tensor& key,
                                     const at::Tensor& value, const at::Tensor& mask);

/// `log_sum`: [batch, heads, queries] in float32, the logarithm of the sum of each query's weights.
/// Keys before and after those that the mask shows to a query of the group are not read.
void attend_few_queries(Grid& grid, const TensorRef& output, const TensorRef& log_sum,
                        const TensorRef& query, const TensorRef& key, const TensorRef& value,
                        const TensorRef& mask, bool causal, double scale);

}  // namespace loom::ops
