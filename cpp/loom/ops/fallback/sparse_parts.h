// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sparse tensors are made of dense ones: indices and values. What the dense parts are on one device
// a sparse tensor can be on another, so loom needs no sparse kernel of its own: the fallback runs
// ATen's on a sparse CPU tensor whose parts are aliases of the device's.
// Thread: any; a tensor is changed by one thread at a time, as everywhere.

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace loom::ops {

/// What a dense part becomes on the other device.
using MapPart = c10::function_ref<at::Tensor(const at::Tensor&)>;

/// True for tensors made of parts: COO, CSR, CSC, BSR and BSC.
[[nodiscard]] bool is_sparse(const at::Tensor& tensor) noexcept;

/// A tensor like `sparse` on `device`, made of `map` of each part.
[[nodiscard]] at::Tensor make_sparse(const at::Tensor& sparse, c10::Device device, MapPart map);

/// Gives `to` the sizes of `from` and `map` of its parts, where they are not the same already.
void assign_sparse(const at::Tensor& from, const at::Tensor& to, MapPart map);

}  // namespace loom::ops
