// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tensors and indices as the kernels of kernels/index/ know them: for index_add and its kin
// (write_rows.h), gather and scatter (elements.h). Thread: any.

#include "loom/kernels/copy/item.h"
#include "loom/kernels/index/lines.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace loom::ops {

using kernels::index::Combine;
using kernels::index::Lines;
using kernels::index::Part;
using kernels::index::Parts;
using kernels::index::Places;

/// Along dimension `dim` of `tensor`, for `count` places of an index.
[[nodiscard]] Lines lines_of(const at::Tensor& tensor, std::int64_t dim, std::int64_t count);

/// The places that an index of int32 or int64 names; nothing as Places::of().
[[nodiscard]] std::optional<Places> places_of(const TensorRef& index, std::int64_t items,
                                              bool wraps);

/// Whether elements of the dtype can be combined: copied are all.
[[nodiscard]] bool can_combine(Combine how, c10::ScalarType dtype) noexcept;

/// Calls `run` with a number of the dtype. Requires: can_combine(), and not kCopy.
template <class Run>
auto with_number(c10::ScalarType dtype, Run&& run) {
  switch (dtype) {
    case c10::kFloat:
      return run(float{});
    case c10::kDouble:
      return run(double{});
    case c10::kInt:
      return run(std::int32_t{});
    default:
      return run(std::int64_t{});
  }
}

}  // namespace loom::ops
