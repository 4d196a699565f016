// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Dense tensors of which what is reduced lies together. Thread: any.

#include "loom/ops/cuts/reduce.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace loom::ops {

/// [outer][summed][inner] in memory.
struct Middle {
  std::int64_t outer = 1, summed = 1, inner = 1;
};

/// How the tensor lies, if it has no gaps and what is summed up lies together, between the others.
[[nodiscard]] std::optional<Middle> middle_of(const at::Tensor& self, Reduced reduced);

/// Whether the result's elements lie in the order of those that stay. Requires: middle_of().
[[nodiscard]] bool follows(const at::Tensor& result, const at::Tensor& self, Reduced reduced);

}  // namespace loom::ops
