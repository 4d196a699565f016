// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Running sums and products along a dimension of dense tensors. Columns that lie side by side go
// through it together, as vectors; few long rows go through it in parts, twice: what comes before a
// part is known from the totals of those before it. Parts depend on shapes only. Thread: any.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace loom::ops {

/// Queues it if it is one of these; `result` may be where `self` is.
[[nodiscard]] bool launch_scan(const char* name, const at::Tensor& result, const at::Tensor& self,
                               std::int64_t dim, bool product);

}  // namespace loom::ops
