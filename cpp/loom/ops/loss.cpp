// SPDX-License-Identifier: BSD-3-Clause
// Losses and their gradients.
#include "loom/ops/structured.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/glu_cpu_dispatch.h>
#include <ATen/ops/glu_meta.h>
#include <ATen/ops/glu_ops.h>
#include <ATen/ops/mse_loss_backward_native.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_cpu_dispatch.h>
#include <ATen/ops/mse_loss_meta.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/nll_loss_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_cpu_dispatch.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/smooth_l1_loss_cpu_dispatch.h>
#include <ATen/ops/smooth_l1_loss_meta.h>
#include <ATen/ops/smooth_l1_loss_ops.h>

namespace loom::ops {
namespace {

/// One value an element if nothing is reduced, else one block: the kernels reduce after a whole
/// pass.
struct ElementLoss {
  template <class... Argument>
  static Pointwise split(const std::array<at::Tensor, 1>&, const at::Tensor& self,
                         const at::Tensor&, std::int64_t reduction, const Argument&...) {
    const auto elements = static_cast<double>(std::max<std::int64_t>(self.numel(), 1));
    // A block's worth of work must cover everything for it to be the only one.
    return {.cost = reduction == at::Reduction::None ? 2 : 1 / elements};
  }
};

/// Samples are independent once the weights have been added up.
struct NllGradient {
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& grad,
                     const at::Tensor& self, const at::Tensor& target,
                     const std::optional<at::Tensor>&, std::int64_t, std::int64_t,
                     const at::Tensor&) {
    constexpr std::int8_t kWhole = SlicePlan::kWhole;
    if (self.dim() != 2 || target.dim() != 1) {
      return {.dims = {kWhole, kWhole, kWhole, kWhole, kWhole, kWhole}};
    }
    const std::int8_t grads = grad.dim() == 1 ? 0 : kWhole;
    return {.dims = {0, grads, 0, 0, kWhole, kWhole},
            .cost = static_cast<double>(outputs[0].size(1))};
  }
};

struct MseGradientMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
            std::int64_t) {
    build(at::TensorIteratorConfig()
              .add_output(maybe_get_output())
              .add_const_input(self)
              .add_const_input(target)
              .add_const_input(grad));
  }
};

at::Tensor& mse_gradient(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                         std::int64_t elements, at::Tensor& to) {
  // The kernel would divide by the elements of its block.
  if (elements == 0) {
    return at::native::mse_loss_backward_out(grad, self, target, at::Reduction::Sum, to);
  }
  at::native::mse_loss_backward_out(grad, self, target, at::Reduction::Sum, to);
  return to.div_(static_cast<double>(elements));
}

struct MseGradient {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                     std::int64_t reduction) {
    const std::int64_t divisor = reduction == at::Reduction::Mean ? self.numel() : 0;
    launch_cpu<&mse_gradient>(name, Pointwise{2}, outputs, grad, self, target, divisor);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_nll_loss_forward, OneBlock, op::nll_loss_forward_output,
             cpu::nll_loss_forward_outf, op::nll_loss_forward>(m);
  structured<meta::structured_nll_loss_backward, NllGradient, op::nll_loss_backward_grad_input,
             cpu::nll_loss_backward_outf, op::nll_loss_backward>(m);
  structured<meta::structured_mse_loss, ElementLoss, op::mse_loss_out, cpu::mse_loss_outf,
             op::mse_loss>(m);
  structured<meta::structured_smooth_l1_loss, ElementLoss, op::smooth_l1_loss_out,
             cpu::smooth_l1_loss_outf, op::smooth_l1_loss>(m);
  structured<meta::structured_glu, OneBlock, op::glu_out, cpu::glu_outf, op::glu>(m);
  structured<MseGradientMeta, MseGradient, op::mse_loss_backward_grad_input,
             at::native::mse_loss_backward_out, op::mse_loss_backward>(m);
}

}  // namespace loom::ops
