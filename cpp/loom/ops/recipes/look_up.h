// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether elements are among others: integers of a small range in a table, others by bisection of
// those, sorted. ATen's kernel sorts all elements together. Thread: the caller's.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// Queues result = elements in `among`, or not in it. False if ATen's kernel has to do it.
[[nodiscard]] bool launch_look_up(const char* name, const at::Tensor& result,
                                  const at::Tensor& elements, const at::Tensor& among, bool invert);

}  // namespace loom::ops
