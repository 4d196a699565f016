// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sorting of rows by the digits of their elements, or by merging if they are short, and their first
// ones. ATen's kernels compare elements by way of iterators, and work on a row on one core. Thread:
// the caller's.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace loom::ops {

/// Queues the sorting of `self` along a dimension, equal elements in their order, into tensors that
/// have its sizes. False if ATen's kernel has to do it.
[[nodiscard]] bool launch_sort(const char* name, const at::Tensor& values,
                               const at::Tensor& indices, const at::Tensor& self, std::int64_t dim,
                               bool descending);

/// Queues the choice of the k first elements of a tensor that is a single long row. False as
/// launch_sort().
[[nodiscard]] bool launch_topk(const char* name, const at::Tensor& values,
                               const at::Tensor& indices, const at::Tensor& self, std::int64_t k,
                               bool largest, bool sorted);

}  // namespace loom::ops
