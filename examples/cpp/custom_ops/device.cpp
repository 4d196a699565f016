// SPDX-License-Identifier: BSD-3-Clause
// The kernels for loom tensors. On the caller: shapes, errors, memory. On the device's cores: the
// loops, each on a block of the result, cut as `launch` is told.
#include "loom/ops/custom_kernel.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "operators.h"

namespace custom_ops {
namespace {

using loom::launch;
using loom::out;

at::Tensor empty_result(const Result& result, c10::Device device) {
  return at::empty(C10_AS_INTARRAYREF_SLOW(result.sizes),
                   at::TensorOptions(device).dtype(result.dtype));
}

/// The device that an operator runs on: that of the first operand that is no CPU scalar.
c10::Device device_of(const at::Tensor& self, const at::Tensor& other) {
  return self.is_privateuseone() ? self.device() : other.device();
}

at::Tensor myadd_loom(const at::Tensor& self, const at::Tensor& other) {
  const at::Tensor result = empty_result(myadd_result(self, other), device_of(self, other));
  launch("custom_ops::myadd", loom::Pointwise{}, myadd_loop, out(result), self, other);
  return result;
}

// Of one multiply-add, beside an addition of floats in memory near by.
constexpr double kMultiplyAddCost = 0.07;

at::Tensor mymatmul_loom(const at::Tensor& self, const at::Tensor& other) {
  const at::Tensor result = empty_result(mymatmul_result(self, other), device_of(self, other));
  if (result.numel() == 0) return result;
  // A block is some matrices of a batch, or some rows of a matrix.
  const bool batched = self.dim() == 3;
  const double row = kMultiplyAddCost * static_cast<double>(other.size(-2) * other.size(-1));
  launch("custom_ops::mymatmul",
         loom::Along{.dims = {0, 0, batched ? std::int8_t{0} : loom::Along::kWhole},
                     .cost = batched ? row * static_cast<double>(self.size(1)) : row},
         mymatmul_loop, out(result), self, other);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(custom_ops, PrivateUse1, m) {
  m.impl("myadd", TORCH_FN(myadd_loom));
  m.impl("mymatmul", TORCH_FN(mymatmul_loom));
}

}  // namespace custom_ops
