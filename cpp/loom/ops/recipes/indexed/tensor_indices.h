// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Indexing with tensors of integers that stand side by side, with nothing or whole dimensions
// beside them: reads and writes of items along one dimension, which those of the indices are
// together. Thread: any.

#include "loom/ops/launch/tensor_ref.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::ops {

using Indices = c10::List<std::optional<at::Tensor>>;

/// self[indices] of sizes `selected`, or nothing if ATen's kernel has to do it.
[[nodiscard]] std::optional<at::Tensor> read_by_indices(const at::Tensor& self,
                                                        const Indices& indices,
                                                        c10::IntArrayRef selected);

/// self[indices] = values, or += if it accumulates. False if ATen's kernel has to do it.
[[nodiscard]] bool write_by_indices(const at::Tensor& self, const Indices& indices,
                                    const at::Tensor& values, bool accumulate,
                                    c10::IntArrayRef selected);

}  // namespace loom::ops
