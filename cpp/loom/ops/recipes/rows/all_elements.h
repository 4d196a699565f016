// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums, extrema, variances and Euclidean norms of all elements of a dense tensor of float32 or a
// half type. Each block has its own sums, in double, which are added in their order; blocks that
// wait for a second pass find their elements in the core's cache. Thread: any.

#include <ATen/core/Tensor.h>

namespace loom::ops {

enum class SumOfAll { kSum, kMean, kOfNumbers };

/// Queues it if it is one of these. `result` has one element, of the dtype of `input` or float.
[[nodiscard]] bool launch_sum_of_all(const char* name, const at::Tensor& result,
                                     const at::Tensor& input, SumOfAll kind);

/// The same; what is undefined is not asked for.
[[nodiscard]] bool launch_extrema_of_all(const char* name, const at::Tensor& least,
                                         const at::Tensor& most, const at::Tensor& input);
[[nodiscard]] bool launch_variance_of_all(const char* name, const at::Tensor& variance,
                                          const at::Tensor& mean, const at::Tensor& input,
                                          double correction, bool root);
[[nodiscard]] bool launch_norm_of_all(const char* name, const at::Tensor& result,
                                      const at::Tensor& input);

}  // namespace loom::ops
