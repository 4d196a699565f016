// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Scaled dot product attention without the matrix of scores in memory: it is made, used and
// forgotten tile by tile (Dao and others, "FlashAttention", 2022), with the block kernel of
// ops/product. Operands are [batch, heads, positions, elements], the mask broadcasts to [batch,
// heads, queries, keys] and is added to the scores; with `causal` query i sees keys 0 to i.
// Thread: the kernels are for launch().

#include "loom/ops/launch/launch.h"

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// True if the kernels below take the operands, and beat ATen's: float32 or bfloat16 with dense
/// elements of which there are at most 256, and more than a few queries.
[[nodiscard]] bool suits_flash_attention(const at::Tensor& query, const at::Tensor& key,
                                         const at::Tensor& value, const at::Tensor& mask);

/// True if the tensor lies as the kernels want their operands and results.
[[nodiscard]] bool suits_flash_attention(const at::Tensor& tensor);

/// True if the mask is undefined, or lies as the kernels want it: the query's dtype, dense keys.
[[nodiscard]] bool suits_attention_mask(const at::Tensor& mask, const at::Tensor& query,
                                        const at::Tensor& key);

/// `log_sum`: [batch, heads, queries] in float32, the logarithm of the sum of each query's weights.
void flash_attention(Grid& grid, const TensorRef& output, const TensorRef& log_sum,
                     const TensorRef& query, const TensorRef& key, const TensorRef& value,
                     const TensorRef& mask, bool causal, double scale);

/// Gradients of all three; `output` and `log_sum` as flash_attention() made them.
void flash_attention_backward(Grid& grid, const TensorRef& to_query, const TensorRef& to_key,
                              const TensorRef& to_value, const TensorRef& grad,
                              const TensorRef& query, const TensorRef& key, const TensorRef& value,
                              const TensorRef& output, const TensorRef& log_sum,
                              const TensorRef& mask, bool causal, double scale);

}  // namespace loom::ops
