// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How errors name the type of a tensor. at::Tensor::toString() says "CPUFloatType", which torch
// turns into Python's "torch.FloatTensor" wherever it is in an error, and likewise for CUDA; for
// other devices it does not.

#include <ATen/core/Tensor.h>

#include <string>

namespace loom::ops {

/// What `tensor.type()` says in Python: "torch.loom.FloatTensor".
[[nodiscard]] std::string type_name(const at::Tensor& tensor);

}  // namespace loom::ops
