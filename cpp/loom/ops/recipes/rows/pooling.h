// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Pooling by kernels of our own: averages, also adaptive ones (area interpolation), their
// gradients, and maxima, over two or three dimensions, in both layouts, of all dtypes of floating
// point. Blocks are ranges of rows of all planes. Thread: the caller's.

#include "loom/kernels/pool_resample/pooling.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>

namespace loom::ops {

/// The arguments of a pooling over `dims` dimensions; lists have that many numbers, or one.
struct Pooling {
  std::int64_t dims;
  c10::IntArrayRef kernel, stride, padding;  ///< no stride: the kernel's size
  c10::IntArrayRef dilation = {};
  bool counts_padding = true;
  std::optional<std::int64_t> divisor = std::nullopt;
};

/// Each queues it if the operands are for these kernels; else false, and nothing happened.
[[nodiscard]] bool launch_average(const char* name, const at::Tensor& result,
                                  const at::Tensor& input, const Pooling& pooling);
[[nodiscard]] bool launch_average_gradient(const char* name, const at::Tensor& result,
                                           const at::Tensor& grad, const Pooling& pooling);
/// `indices` may be undefined.
[[nodiscard]] bool launch_largest(const char* name, const at::Tensor& result,
                                  const at::Tensor& indices, const at::Tensor& input,
                                  const Pooling& pooling);

/// As many averages as the result has elements.
[[nodiscard]] bool launch_adaptive_average(const char* name, const at::Tensor& result,
                                           const at::Tensor& input, std::int64_t dims);
[[nodiscard]] bool launch_adaptive_average_gradient(const char* name, const at::Tensor& result,
                                                    const at::Tensor& grad, std::int64_t dims);

}  // namespace loom::ops
