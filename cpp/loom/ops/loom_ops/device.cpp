// SPDX-License-Identifier: BSD-3-Clause
// The kernels for loom tensors. On the caller: shapes, errors, memory. On the device's cores: the
// loops, each on a block of the result, cut as `launch` is told.
#include "loom/ops/empty.h"
#include "loom/ops/launch.h"
#include "loom/ops/loom_ops/operators.h"

#include <torch/library.h>

namespace loom::loom_ops {
namespace {

using ops::launch;
using ops::out;

at::Tensor empty_result(const Result& result, c10::Device device) {
  return ops::empty(C10_AS_INTARRAYREF_SLOW(result.sizes), result.dtype, device);
}

/// The device that an operator runs on: that of the first operand that is no CPU scalar.
c10::Device device_of(const at::Tensor& self, const at::Tensor& other) {
  return self.is_privateuseone() ? self.device() : other.device();
}

at::Tensor myadd_loom(const at::Tensor& self, const at::Tensor& other) {
  const at::Tensor result = empty_result(myadd_result(self, other), device_of(self, other));
  launch("loom_ops::myadd", ops::Pointwise{}, myadd_loop, out(result), self, other);
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
  launch("loom_ops::mymatmul",
         ops::Along{.dims = {0, 0, batched ? std::int8_t{0} : ops::SlicePlan::kWhole},
                    .cost = batched ? row * static_cast<double>(self.size(1)) : row},
         mymatmul_loop, out(result), self, other);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(loom_ops, PrivateUse1, m) {
  m.impl("myadd", TORCH_FN(myadd_loom));
  m.impl("mymatmul", TORCH_FN(mymatmul_loom));
}

}  // namespace loom::loom_ops
