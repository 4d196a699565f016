// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the files of this folder share: the typed operators, the rules of their results, the loops.
// Thread: any.

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymIntArrayRef.h>

#include "custom_ops.h"

namespace custom_ops {

using Binary = at::Tensor(const at::Tensor&, const at::Tensor&);

/// Handles that dispatch without a lookup by name.
const c10::TypedOperatorHandle<Binary>& myadd_operator();
const c10::TypedOperatorHandle<Binary>& mymatmul_operator();

/// Sizes and dtype of a result. Symbolic sizes stay symbolic.
struct Result {
  c10::SymDimVector sizes;
  c10::ScalarType dtype;
};
/// Throw what the operators throw.
Result myadd_result(const at::Tensor& self, const at::Tensor& other);
Result mymatmul_result(const at::Tensor& self, const at::Tensor& other);

/// The loops, over CPU tensors: on loom these are blocks of the device's memory.
void myadd_loop(const at::Tensor& result, const at::Tensor& self, const at::Tensor& other);
void mymatmul_loop(const at::Tensor& result, const at::Tensor& self, const at::Tensor& other);

}  // namespace custom_ops
