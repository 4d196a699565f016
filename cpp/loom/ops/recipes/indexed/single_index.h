// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Indexing with one tensor, and nothing or whole dimensions beside it: reads and writes of rows.
// Thread: any.

#include "loom/ops/launch/tensor_ref.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::ops {

using Indices = c10::List<std::optional<at::Tensor>>;

/// self[index] of sizes `selected`, or nothing if ATen's kernel has to do it.
[[nodiscard]] std::optional<at::Tensor> read_single_index(const at::Tensor& self,
                                                          const Indices& indices,
                                                          c10::IntArrayRef selected);

/// self[index] = values, or += if it accumulates. False if ATen's kernel has to do it.
[[nodiscard]] bool write_single_index(const at::Tensor& self, const Indices& indices,
                                      const at::Tensor& values, bool accumulate,
                                      c10::IntArrayRef selected);

}  // namespace loom::ops
