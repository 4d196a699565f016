// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What c10d's reductions are here. Thread: any.

#include "loom/collectives/combine.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace loom::distributed {

/// How elements of `dtype` are reduced. Of complex numbers it is their real and imaginary parts'
/// (as_elements()), of bool SUM and MAX are "or", PRODUCT and MIN "and".
/// Throws: c10::ValueError / TypeError naming `name` for what has no meaning: AVG of bool, bits of
/// floats, MAX of complex numbers, any of 8-bit floats.
[[nodiscard]] collectives::Combination combination_of(const char* name,
                                                      const c10d::ReduceOp& reduction,
                                                      c10::ScalarType dtype);

/// A tensor of complex numbers as one of twice as many real ones; any other one as it is.
[[nodiscard]] at::Tensor as_elements(const at::Tensor& tensor);

}  // namespace loom::distributed
