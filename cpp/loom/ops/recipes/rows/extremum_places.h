// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where the least or largest elements of a dimension are, of dense tensors of float32 or half
// types. Thread: any.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace loom::ops {

/// Queues it if it is one of these: `places` (int64) of the dimension `dim`, or of all elements as
/// one row, and the elements there if `values` is defined. Equal ones are found at the first place,
/// as ATen does; NaN is before all others.
[[nodiscard]] bool launch_extremum_places(const char* name, const at::Tensor& values,
                                          const at::Tensor& places, const at::Tensor& input,
                                          std::optional<std::int64_t> dim, bool largest);

}  // namespace loom::ops
