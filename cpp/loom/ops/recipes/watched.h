// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether somebody looks at the operators that a composite is made of: then it has to be one.
// Thread: any.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// True for tensors of Python classes, inside torch.func, and under modes that see operators.
[[nodiscard]] bool is_watched(const at::Tensor& tensor);

}  // namespace loom::ops
