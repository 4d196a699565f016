// SPDX-License-Identifier: BSD-3-Clause
// Losses and their gradients.
#include "loom/ops/policy/nll_loss.h"
#include "loom/ops/structured.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward.h>
#include <ATen/ops/huber_loss_backward_native.h>
#include <ATen/ops/huber_loss_backward_ops.h>
#include <ATen/ops/huber_loss_native.h>
#include <ATen/ops/huber_loss_ops.h>
#include <ATen/ops/mse_loss_backward_native.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_cpu_dispatch.h>
#include <ATen/ops/mse_loss_meta.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/nll_loss2d_forward_native.h>
#include <ATen/ops/smooth_l1_loss_backward_native.h>
#include <ATen/ops/smooth_l1_loss_backward_ops.h>
#include <ATen/ops/smooth_l1_loss_cpu_dispatch.h>
#include <ATen/ops/smooth_l1_loss_meta.h>
#include <ATen/ops/smooth_l1_loss_ops.h>

namespace loom::ops {
namespace {

namespace cpu = at::cpu;
namespace meta = at::meta;
namespace op = at::_ops;

at::Tensor reduced(const at::Tensor& each, std::int64_t reduction) {
  if (reduction == at::Reduction::Mean) return each.mean();
  return reduction == at::Reduction::Sum ? each.sum() : each;
}

/// A loss of every element, which is then reduced: the CPU kernels do the same, but in a result
/// that they resize.
template <class Op, class Out, class Meta, detail::Schema<Out>* kCpu>
struct ReducedLoss {
  template <class... More>
  static at::Tensor call(const at::Tensor& self, const at::Tensor& target, std::int64_t reduction,
                         More... more) {
    using Form = detail::StructuredForm<Op, Meta, Elementwise<2>, kCpu>;
    return reduced(Form::call(self, target, at::Reduction::None, more...), reduction);
  }
  template <class... More>
  static at::Tensor& call_out(const at::Tensor& self, const at::Tensor& target,
                              std::int64_t reduction, More... more, at::Tensor& output) {
    using Form = detail::StructuredForm<Out, Meta, Elementwise<2>, kCpu>;
    if (reduction == at::Reduction::None) {
      return Form::call(self, target, reduction, more..., output);
    }
    const at::Tensor result = call(self, target, reduction, more...);
    at::native::resize_output(output, {});
    return output.copy_(result);
  }
};

using MseLoss =
    ReducedLoss<op::mse_loss, op::mse_loss_out, meta::structured_mse_loss, cpu::mse_loss_outf>;
using SmoothL1Loss = ReducedLoss<op::smooth_l1_loss, op::smooth_l1_loss_out,
                                 meta::structured_smooth_l1_loss, cpu::smooth_l1_loss_outf>;

struct HuberMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self, const at::Tensor& target, std::int64_t, double delta) {
    TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.")
    build_borrowing_binary_op(maybe_get_output(), self, target);
  }
};
using HuberLoss =
    ReducedLoss<op::huber_loss, op::huber_loss_out, HuberMeta, at::native::huber_loss_out>;

template <class... More>
struct GradientMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target, std::int64_t,
            More...) {
    build(at::TensorIteratorConfig()
              .add_output(maybe_get_output())
              .add_const_input(self)
              .add_const_input(target)
              .add_const_input(grad));
  }
};

// What ATen's operators do, with the factor of all elements and not of a block's. It comes first,
// as there: narrow types would not hold a gradient of the sum.
template <auto& kStub, class... More>
at::Tensor& scaled_gradient(const at::Tensor& grad, const at::Tensor& self,
                            const at::Tensor& target, double factor, More... more, at::Tensor& to) {
  auto elements = at::TensorIteratorConfig()
                      .add_output(to)
                      .add_const_input(self)
                      .add_const_input(target)
                      .add_const_input(grad)
                      .build();
  kStub(c10::kCPU, elements, factor, more...);
  return to;
}

/// Policy of a gradient that is `kFactor` times something, over the elements if they were averaged.
template <auto& kStub, int kFactor>
struct Gradient {
  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                     std::int64_t reduction, More... more) {
    const bool mean = reduction == at::Reduction::Mean;
    const double factor = kFactor / (mean ? static_cast<double>(self.numel()) : 1.0);
    launch_cpu<&scaled_gradient<kStub, More...>>(name, Pointwise{2}, outputs, grad, self, target,
                                                 factor, more...);
  }
};

using HuberGradient = Gradient<at::native::huber_backward_stub, 1>;
using SmoothL1Gradient = Gradient<at::native::smooth_l1_backward_stub, 1>;
using MseGradient = Gradient<at::native::mse_backward_stub, 2>;

/// The functional form of CPU writes into a tensor like the input, whatever the other operands are.
template <class Out, class Policy, auto kCpu>
at::Tensor gradient(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                    std::int64_t reduction, double bound) {
  at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device());
  using Form = detail::StructuredForm<Out, GradientMeta<double>, Policy, kCpu>;
  return Form::call(grad, self, target, reduction, bound, result);
}

// Blocks of a deferred operator (deferred_split.h) cannot reduce, nor divide by the number of all
// elements: where there are enough for several, that is an operator of its own.
bool is_worth_cutting(const at::Tensor& self, double cost) {
  return block_length(self.numel(), cost) < self.numel();
}

at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, std::int64_t reduction) {
  if (reduction == at::Reduction::None || !is_worth_cutting(self, 20)) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, std::int64_t>(
        "aten::binary_cross_entropy", "", self, target, weight, reduction);
  }
  return reduced(at::binary_cross_entropy(self, target, weight, at::Reduction::None), reduction);
}

at::Tensor binary_cross_entropy_backward(const at::Tensor& grad, const at::Tensor& self,
                                         const at::Tensor& target,
                                         const std::optional<at::Tensor>& weight,
                                         std::int64_t reduction) {
  if (reduction != at::Reduction::Mean || !is_worth_cutting(self, 4)) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, std::int64_t>(
        "aten::binary_cross_entropy_backward", "", grad, self, target, weight, reduction);
  }
  return at::binary_cross_entropy_backward(grad, self, target, weight, at::Reduction::Sum)
      .div_(self.numel());
}

/// Whether the CPU kernel takes them; it says itself what is wrong with others.
bool are_labelled_images(const at::Tensor& self, const at::Tensor& target,
                         const at::Tensor& weight) {
  const bool fits = self.dim() == 4 && target.dim() == 3 && target.size(0) == self.size(0) &&
                    target.size(1) == self.size(2) && target.size(2) == self.size(3);
  const bool weighs = !weight.defined() || (weight.dim() == 1 && weight.size(0) == self.size(1) &&
                                            weight.scalar_type() == self.scalar_type() &&
                                            weight.device() == self.device());
  return fits && weighs &&
         (self.scalar_type() == c10::kFloat || self.scalar_type() == c10::kDouble) &&
         target.scalar_type() == c10::kLong && target.device() == self.device();
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(const at::Tensor& self,
                                                      const at::Tensor& target,
                                                      const std::optional<at::Tensor>& weight,
                                                      std::int64_t reduction, c10::SymInt ignored) {
  const std::int64_t block = nll_block(self, target, reduction);
  if (!are_labelled_images(self, target, weight.value_or(at::Tensor())) || block == self.size(0)) {
    return call_fallback<std::tuple<at::Tensor, at::Tensor>, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, std::int64_t, c10::SymInt>(
        "aten::nll_loss2d_forward", "", self, target, weight, reduction, std::move(ignored));
  }
  const bool each = reduction == at::Reduction::None;
  at::Tensor output =
      empty(each ? target.sizes() : c10::IntArrayRef(), self.scalar_type(), self.device());
  at::Tensor total = empty({}, self.scalar_type(), self.device());
  launch("nll_loss2d_forward", Custom{}, nll_loss_in_blocks<at::native::nll_loss2d_forward_out_cpu>,
         out(output), out(total), self, target, weight, reduction, ignored.expect_int(), block);
  return {output, total};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mse_loss", TORCH_FN(MseLoss::call<>));
  m.impl("mse_loss.out", TORCH_FN(MseLoss::call_out<>));
  m.impl("smooth_l1_loss", TORCH_FN(SmoothL1Loss::call<double>));
  m.impl("smooth_l1_loss.out", TORCH_FN(SmoothL1Loss::call_out<double>));
  m.impl("huber_loss", TORCH_FN(HuberLoss::call<double>));
  m.impl("huber_loss.out", TORCH_FN(HuberLoss::call_out<double>));
  structured<GradientMeta<>, MseGradient, op::mse_loss_backward_grad_input,
             at::native::mse_loss_backward_out, op::mse_loss_backward>(m);
  structured<GradientMeta<double>, HuberGradient, op::huber_loss_backward_out,
             at::native::huber_loss_backward_out>(m);
  structured<GradientMeta<double>, SmoothL1Gradient, op::smooth_l1_loss_backward_grad_input,
             at::native::smooth_l1_loss_backward_out>(m);
  m.impl("huber_loss_backward", TORCH_FN((gradient<op::huber_loss_backward_out, HuberGradient,
                                                   at::native::huber_loss_backward_out>)));
  m.impl("smooth_l1_loss_backward",
         TORCH_FN((gradient<op::smooth_l1_loss_backward_grad_input, SmoothL1Gradient,
                            at::native::smooth_l1_loss_backward_out>)));
  m.impl("nll_loss2d_forward", TORCH_FN(nll_loss2d_forward));
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  m.impl("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
}

}  // namespace loom::ops
