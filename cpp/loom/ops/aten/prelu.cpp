// SPDX-License-Identifier: BSD-3-Clause
// prelu and its gradients with ATen's CPU kernels, which write where the results belong: the CPU
// operator has no form with given results, whose own would be copied.
#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Activation.h>
#include <torch/library.h>

#include <tuple>

namespace loom::ops {
namespace {

// Of one element, beside an addition.
constexpr double kCost = 1, kGradientCost = 2;

void slope(const at::Tensor& result, const at::Tensor& self, const at::Tensor& weight) {
  auto elements = at::TensorIteratorConfig()
                      .add_output(result)
                      .add_const_input(self)
                      .add_const_input(weight)
                      .build();
  at::native::prelu_stub(c10::kCPU, elements);
}

void slope_gradients(const at::Tensor& to_self, const at::Tensor& to_weight,
                     const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& weight) {
  auto elements = at::TensorIteratorConfig()
                      .add_output(to_self)
                      .add_output(to_weight)
                      .add_const_input(self)
                      .add_const_input(weight)
                      .add_const_input(gradient)
                      .build();
  at::native::prelu_backward_stub(c10::kCPU, elements);
}

bool is_plain(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.is_privateuseone() && tensor.device() == like.device() &&
         tensor.scalar_type() == like.scalar_type() && tensor.layout() == c10::kStrided &&
         !tensor.is_neg() && !tensor._is_zerotensor();
}

/// Calls that need no checks, whose results lie as `self` does.
bool is_regular(const at::Tensor& self, const at::Tensor& weight) {
  const c10::ScalarType dtype = self.scalar_type();
  const bool known = dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kBFloat16 ||
                     dtype == c10::kHalf;
  return known && is_plain(self, self) && is_plain(weight, self) && self.numel() > 0 &&
         self.is_non_overlapping_and_dense() && at::is_expandable_to(weight.sizes(), self.sizes());
}

at::Tensor prelu(const at::Tensor& self, const at::Tensor& weight) {
  if (!is_regular(self, weight)) [[unlikely]] {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>("aten::_prelu_kernel",
                                                                           "", self, weight);
  }
  const at::Tensor result = loom::ops::empty_like(self);
  launch("_prelu_kernel", Pointwise{kCost}, &slope, out(result), self, weight);
  return result;
}

std::tuple<at::Tensor, at::Tensor> prelu_backward(const at::Tensor& gradient,
                                                  const at::Tensor& self,
                                                  const at::Tensor& weight) {
  const bool alike = is_regular(self, weight) && is_plain(gradient, self) &&
                     gradient.sizes() == self.sizes() && gradient.strides() == self.strides();
  if (!alike) [[unlikely]] {
    return call_fallback<std::tuple<at::Tensor, at::Tensor>, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&>("aten::_prelu_kernel_backward", "", gradient, self,
                                            weight);
  }
  at::Tensor to_self = loom::ops::empty_like(self), to_weight = loom::ops::empty_like(self);
  launch("_prelu_kernel_backward", Pointwise{kGradientCost}, &slope_gradients, out(to_self),
         out(to_weight), gradient, self, weight);
  return {to_self, to_weight};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_prelu_kernel", TORCH_FN(prelu));
  m.impl("_prelu_kernel_backward", TORCH_FN(prelu_backward));
}

}  // namespace loom::ops
