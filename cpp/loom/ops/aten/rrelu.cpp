// SPDX-License-Identifier: BSD-3-Clause
// rrelu: slopes are drawn where they are needed, and noted in `noise` for the gradient.
#include "loom/backend/registration.h"
#include "loom/ops/launch/empty.h"

#include <ATen/core/Generator.h>
#include <ATen/ops/le.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

using OptionalGenerator = std::optional<at::Generator>;

at::Tensor& rrelu_out(const at::Tensor& self, at::Tensor& noise, const c10::Scalar& lower,
                      const c10::Scalar& upper, bool training, OptionalGenerator generator,
                      at::Tensor& output) {
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  if (!training) {
    return at::leaky_relu_out(output, self, (lower.to<double>() + upper.to<double>()) / 2);
  }
  const at::Tensor slopes =
      empty(self.sizes(), self.scalar_type(), self.device())
          .uniform_(lower.to<double>(), upper.to<double>(), std::move(generator));
  noise.copy_(at::where(at::le(self, 0), slopes, c10::Scalar(1)));
  return at::mul_out(output, self, noise);
}

at::Tensor rrelu(const at::Tensor& self, at::Tensor& noise, const c10::Scalar& lower,
                 const c10::Scalar& upper, bool training, OptionalGenerator generator) {
  at::Tensor output = empty(self.sizes(), self.scalar_type(), self.device());
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), output);
}

at::Tensor& rrelu_(at::Tensor& self, at::Tensor& noise, const c10::Scalar& lower,
                   const c10::Scalar& upper, bool training, OptionalGenerator generator) {
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), self);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("rrelu_with_noise", TORCH_FN(rrelu));
  m.impl("rrelu_with_noise_", TORCH_FN(rrelu_));
  m.impl("rrelu_with_noise.out", TORCH_FN(rrelu_out));
}

}  // namespace loom::ops
