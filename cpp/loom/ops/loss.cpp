// SPDX-License-Identifier: BSD-3-Clause
// Losses and their gradients.
#include "loom/ops/structured.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/mse_loss_backward_native.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_cpu_dispatch.h>
#include <ATen/ops/mse_loss_meta.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/smooth_l1_loss_cpu_dispatch.h>
#include <ATen/ops/smooth_l1_loss_meta.h>
#include <ATen/ops/smooth_l1_loss_ops.h>

namespace loom::ops {
namespace {

namespace cpu = at::cpu;
namespace meta = at::meta;
namespace op = at::_ops;

/// A loss of every element, which is then reduced: the CPU kernels do the same, but in a result
/// that they resize.
template <class Op, class Out, class Meta, detail::Schema<Out>* kCpu>
struct ReducedLoss {
  template <class... More>
  static at::Tensor call(const at::Tensor& self, const at::Tensor& target, std::int64_t reduction,
                         More... more) {
    using Form = detail::StructuredForm<Op, Meta, Elementwise<2>, kCpu>;
    const at::Tensor each = Form::call(self, target, at::Reduction::None, more...);
    if (reduction == at::Reduction::Mean) return each.mean();
    return reduction == at::Reduction::Sum ? each.sum() : each;
  }
  template <class... More>
  static at::Tensor& call_out(const at::Tensor& self, const at::Tensor& target,
                              std::int64_t reduction, More... more, at::Tensor& output) {
    using Form = detail::StructuredForm<Out, Meta, Elementwise<2>, kCpu>;
    if (reduction == at::Reduction::None) {
      return Form::call(self, target, reduction, more..., output);
    }
    const at::Tensor reduced = call(self, target, reduction, more...);
    at::native::resize_output(output, {});
    return output.copy_(reduced);
  }
};

using MseLoss =
    ReducedLoss<op::mse_loss, op::mse_loss_out, meta::structured_mse_loss, cpu::mse_loss_outf>;
using SmoothL1Loss = ReducedLoss<op::smooth_l1_loss, op::smooth_l1_loss_out,
                                 meta::structured_smooth_l1_loss, cpu::smooth_l1_loss_outf>;

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

// What ATen's operator does, with the factor of all elements and not of a block's. It comes first,
// as there: narrow types would not hold a gradient of the sum.
at::Tensor& mse_gradient(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                         double factor, at::Tensor& to) {
  auto elements = at::TensorIteratorConfig()
                      .add_output(to)
                      .add_const_input(self)
                      .add_const_input(target)
                      .add_const_input(grad)
                      .build();
  at::native::mse_backward_stub(c10::kCPU, elements, factor);
  return to;
}

struct MseGradient {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                     std::int64_t reduction) {
    const bool mean = reduction == at::Reduction::Mean;
    const double factor = mean ? 2.0 / static_cast<double>(self.numel()) : 2.0;
    launch_cpu<&mse_gradient>(name, Pointwise{2}, outputs, grad, self, target, factor);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mse_loss", TORCH_FN(MseLoss::call<>));
  m.impl("mse_loss.out", TORCH_FN(MseLoss::call_out<>));
  m.impl("smooth_l1_loss", TORCH_FN(SmoothL1Loss::call<double>));
  m.impl("smooth_l1_loss.out", TORCH_FN(SmoothL1Loss::call_out<double>));
  structured<MseGradientMeta, MseGradient, op::mse_loss_backward_grad_input,
             at::native::mse_loss_backward_out, op::mse_loss_backward>(m);
}

}  // namespace loom::ops
