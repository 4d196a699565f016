// SPDX-License-Identifier: BSD-3-Clause
// Losses and their gradients.
#include "loom/backend/registration.h"
#include "loom/ops/aten/policy/nll_loss.h"
#include "loom/ops/aten/structured.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward.h>
#include <ATen/ops/binary_cross_entropy_native.h>
#include <ATen/ops/empty_like.h>
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
    TORCH_CHECK(c10::canCast(result.scalar_type(), output.scalar_type()), "result type ",
                result.scalar_type(), " can't be cast to the desired output type ",
                output.scalar_type());
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

/// The losses of elements are in a tensor like the input, whatever the target is; those of the out=
/// form are of the output's dtype, also where they are reduced. The CPU kernels do the same.
struct HuberLoss {
  using Form = detail::StructuredForm<op::huber_loss_out, HuberMeta, Elementwise<2>,
                                      at::native::huber_loss_out>;
  static at::Tensor call(const at::Tensor& self, const at::Tensor& target, std::int64_t reduction,
                         double delta) {
    // Two that are alike have a result like them, and a new one takes less of the caller's time.
    if (self.scalar_type() == target.scalar_type() && self.sizes() == target.sizes() &&
        self.is_contiguous() && target.is_contiguous()) {
      using New = detail::StructuredForm<op::huber_loss, HuberMeta, Elementwise<2>,
                                         at::native::huber_loss_out>;
      return reduced(New::call(self, target, at::Reduction::None, delta), reduction);
    }
    at::Tensor each = at::empty_like(self);
    return reduced(Form::call(self, target, at::Reduction::None, delta, each), reduction);
  }
  static at::Tensor& call_out(const at::Tensor& self, const at::Tensor& target,
                              std::int64_t reduction, double delta, at::Tensor& output) {
    if (reduction == at::Reduction::None) {
      return Form::call(self, target, reduction, delta, output);
    }
    at::Tensor each = empty({0}, output.scalar_type(), output.device());
    const at::Tensor result =
        reduced(Form::call(self, target, at::Reduction::None, delta, each), reduction);
    at::native::resize_output(output, {});
    return output.copy_(result);
  }
};

/// What ATen's operators iterate over; some of them refuse operands of several dtypes.
template <bool kPromotes>
at::TensorIteratorConfig& add_operands(at::TensorIteratorConfig& config, const at::Tensor& to,
                                       const at::Tensor& grad, const at::Tensor& self,
                                       const at::Tensor& target) {
  return config.add_output(to)
      .add_const_input(self)
      .add_const_input(target)
      .add_const_input(grad)
      .promote_inputs_to_common_dtype(kPromotes)
      .cast_common_dtype_to_outputs(kPromotes)
      .enforce_safe_casting_to_output(kPromotes);
}

template <bool kPromotes, class... More>
struct GradientMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target, std::int64_t,
            More...) {
    at::TensorIteratorConfig config;
    build(add_operands<kPromotes>(config, maybe_get_output(), grad, self, target));
  }
};

// What ATen's operators do, with the factor of all elements and not of a block's. It comes first,
// as there: narrow types would not hold a gradient of the sum.
template <auto& kStub, bool kPromotes, class... More>
at::Tensor& scaled_gradient(const at::Tensor& grad, const at::Tensor& self,
                            const at::Tensor& target, double factor, More... more, at::Tensor& to) {
  at::TensorIteratorConfig config;
  auto elements = add_operands<kPromotes>(config, to, grad, self, target).build();
  kStub(c10::kCPU, elements, factor, more...);
  return to;
}

/// Policy of a gradient that is `kFactor` times something, over the elements if they were averaged.
template <auto& kStub, int kFactor, bool kPromotesDtypes>
struct Gradient {
  static constexpr bool kPromotes = kPromotesDtypes;
  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                     std::int64_t reduction, More... more) {
    const bool mean = reduction == at::Reduction::Mean;
    const double factor = kFactor / (mean ? static_cast<double>(self.numel()) : 1.0);
    launch_cpu<&scaled_gradient<kStub, kPromotes, More...>>(name, Pointwise{2}, outputs, grad, self,
                                                            target, factor, more...);
  }
};

using HuberGradient = Gradient<at::native::huber_backward_stub, 1, false>;
using SmoothL1Gradient = Gradient<at::native::smooth_l1_backward_stub, 1, true>;
using MseGradient = Gradient<at::native::mse_backward_stub, 2, true>;

/// The functional form of CPU writes into a tensor like the input, whatever the other operands are.
template <class Out, class Policy, auto kCpu, class... More>
at::Tensor gradient(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                    std::int64_t reduction, More... more) {
  at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device());
  using Form = detail::StructuredForm<Out, GradientMeta<Policy::kPromotes, More...>, Policy, kCpu>;
  return Form::call(grad, self, target, reduction, more..., result);
}

// Blocks of a deferred operator (deferred_split.h) cannot reduce, nor divide by the number of all
// elements: where there are enough for several, that is an operator of its own.
bool is_worth_cutting(const at::Tensor& self, double cost) {
  return block_length(self.numel(), cost) < self.numel();
}

/// Throws what the CPU kernel says about the dtypes. Errors about shapes and devices come before.
void check_cross_entropy_dtypes(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, const at::Tensor& each) {
  const bool weighs = weight && weight->defined();
  const auto is_beside_self = [&](const at::Tensor& other) {
    return other.device() == self.device();
  };
  if (target.sizes() != self.sizes() || each.sizes() != self.sizes()) return;
  if (!is_beside_self(target) || !is_beside_self(each)) return;
  if (weighs && (weight->dim() > self.dim() || !is_beside_self(*weight))) return;
  probe_dtypes<at::native::binary_cross_entropy_out_cpu>(std::array{each}, self, target, weight,
                                                         at::Reduction::None);
}

at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, std::int64_t reduction) {
  check_cross_entropy_dtypes(self, target, weight, self);
  if (reduction == at::Reduction::None || !is_worth_cutting(self, 20)) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, std::int64_t>(
        "aten::binary_cross_entropy", "", self, target, weight, reduction);
  }
  return reduced(at::binary_cross_entropy(self, target, weight, at::Reduction::None), reduction);
}

// The CPU kernel first has all losses in its output. If that has another size, or the place of an
// operand, what comes out depends on it, and is left to the CPU kernel.
at::Tensor& binary_cross_entropy_out(const at::Tensor& self, const at::Tensor& target,
                                     const std::optional<at::Tensor>& weight,
                                     std::int64_t reduction, at::Tensor& output) {
  check_cross_entropy_dtypes(self, target, weight, output);
  using Result = at::Tensor&;
  if (reduction == at::Reduction::None) {
    return call_fallback<Result, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, std::int64_t, at::Tensor&>(
        "aten::binary_cross_entropy", "out", self, target, weight, reduction, output);
  }
  const std::array<const at::Tensor*, 4> operands{&self, &target, detail::as_tensor(weight),
                                                  &output};
  if (output.sizes() != self.sizes() || operands_overlap(operands, {3, 1}, false)) {
    using Wrapper = c10::impl::BoxedKernelWrapper<Result(const at::Tensor&, const at::Tensor&,
                                                         const std::optional<at::Tensor>&,
                                                         std::int64_t, at::Tensor&)>;
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::binary_cross_entropy", "out");
    return Wrapper::call(c10::BoxedKernel::makeFromFunction<&fallback_on_host>(), op,
                         c10::DispatchKeySet(), self, target, weight, reduction, output);
  }
  const at::Tensor result = at::binary_cross_entropy(self, target, weight, reduction);
  at::native::resize_output(output, {});
  return output.copy_(result);
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

/// Whether they are that but for their dtypes; the CPU kernel says itself what is wrong with
/// others.
bool are_labelled_images(const at::Tensor& self, const at::Tensor& target,
                         const at::Tensor& weight) {
  const bool fits = self.dim() == 4 && target.dim() == 3 && target.size(0) == self.size(0) &&
                    target.size(1) == self.size(2) && target.size(2) == self.size(3);
  const bool weighs = !weight.defined() || (weight.dim() == 1 && weight.size(0) == self.size(1) &&
                                            weight.device() == self.device());
  return fits && weighs && target.device() == self.device();
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(const at::Tensor& self,
                                                      const at::Tensor& target,
                                                      const std::optional<at::Tensor>& weight,
                                                      std::int64_t reduction, c10::SymInt ignored) {
  const bool fits = are_labelled_images(self, target, weight.value_or(at::Tensor()));
  if (fits) {
    check_nll_dtypes<at::native::nll_loss2d_forward_out_cpu>({self, self}, self, target, weight,
                                                             reduction);
  }
  const std::int64_t block = nll_block(self, target, reduction);
  if (!fits || block == self.size(0)) {
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

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mse_loss", TORCH_FN(MseLoss::call<>));
  m.impl("mse_loss.out", TORCH_FN(MseLoss::call_out<>));
  m.impl("smooth_l1_loss", TORCH_FN(SmoothL1Loss::call<double>));
  m.impl("smooth_l1_loss.out", TORCH_FN(SmoothL1Loss::call_out<double>));
  m.impl("huber_loss", TORCH_FN(HuberLoss::call));
  m.impl("huber_loss.out", TORCH_FN(HuberLoss::call_out));
  structured<GradientMeta<true>, MseGradient, op::mse_loss_backward_grad_input,
             at::native::mse_loss_backward_out>(m);
  structured<GradientMeta<false, double>, HuberGradient, op::huber_loss_backward_out,
             at::native::huber_loss_backward_out>(m);
  structured<GradientMeta<true, double>, SmoothL1Gradient, op::smooth_l1_loss_backward_grad_input,
             at::native::smooth_l1_loss_backward_out>(m);
  m.impl("mse_loss_backward", TORCH_FN((gradient<op::mse_loss_backward_grad_input, MseGradient,
                                                 at::native::mse_loss_backward_out>)));
  m.impl("huber_loss_backward", TORCH_FN((gradient<op::huber_loss_backward_out, HuberGradient,
                                                   at::native::huber_loss_backward_out, double>)));
  m.impl("smooth_l1_loss_backward",
         TORCH_FN((gradient<op::smooth_l1_loss_backward_grad_input, SmoothL1Gradient,
                            at::native::smooth_l1_loss_backward_out, double>)));
  m.impl("nll_loss2d_forward", TORCH_FN(nll_loss2d_forward));
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  m.impl("binary_cross_entropy.out", TORCH_FN(binary_cross_entropy_out));
  m.impl("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
}

}  // namespace loom::ops
