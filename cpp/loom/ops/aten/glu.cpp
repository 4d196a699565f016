// SPDX-License-Identifier: BSD-3-Clause
// The gradient of glu as one fused operator; ATen computes it in three passes.
#include "loom/backend/registration.h"
#include "loom/ops/aten/policy/fused_activations.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"

#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

/// Records result = glu's gradient, or returns false.
bool record(const at::Tensor& result, const at::Tensor& grad, const at::Tensor& self,
            std::int64_t dim) {
  FusedOperator f("glu_backward", self.scalar_type());
  if (!f.possible() || !f.floating()) return false;
  const Halves from(self, dim), to(result, dim);
  const auto g = f.load(grad), value = f.load(from.first);
  // ATen keeps the sigmoid in the result, so that it has the result's precision.
  const auto gate = f.rounded(recipe::logistic(f, f.load(from.second)));
  f.store(f.mul(gate, g), to.first);
  f.store(f.mul(f.mul(f.mul(f.sub(f.number(1.0), gate), gate), value), g), to.second);
  return f.record(result.device());
}

at::Tensor glu_backward(const at::Tensor& grad, const at::Tensor& self, std::int64_t dim) {
  const bool regular = self.is_privateuseone() && self.dim() > 0 && dim >= -self.dim() &&
                       dim < self.dim() && self.size(dim) % 2 == 0 && self.numel() > 0 &&
                       grad.device() == self.device() && grad.scalar_type() == self.scalar_type();
  if (regular) {
    at::DimVector half(self.sizes());
    half[c10::maybe_wrap_dim(dim, self.dim())] /= 2;
    if (grad.sizes() == c10::IntArrayRef(half)) {
      at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device());
      if (record(result, grad, self, dim)) return result;
    }
  }
  return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, std::int64_t>(
      "aten::glu_backward", "", grad, self, dim);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("glu_backward", TORCH_FN(glu_backward)); }

}  // namespace loom::ops
