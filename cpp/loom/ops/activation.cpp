// SPDX-License-Identifier: BSD-3-Clause
// Activation functions and their gradients.
#include "loom/ops/structured.h"

#include <ATen/ops/elu_backward_cpu_dispatch.h>
#include <ATen/ops/elu_backward_meta.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_cpu_dispatch.h>
#include <ATen/ops/elu_meta.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/gelu_backward_cpu_dispatch.h>
#include <ATen/ops/gelu_backward_meta.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/gelu_meta.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/hardshrink_backward_cpu_dispatch.h>
#include <ATen/ops/hardshrink_backward_meta.h>
#include <ATen/ops/hardshrink_backward_ops.h>
#include <ATen/ops/hardshrink_cpu_dispatch.h>
#include <ATen/ops/hardshrink_meta.h>
#include <ATen/ops/hardshrink_ops.h>
#include <ATen/ops/hardsigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/hardsigmoid_backward_meta.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/hardsigmoid_cpu_dispatch.h>
#include <ATen/ops/hardsigmoid_meta.h>
#include <ATen/ops/hardsigmoid_ops.h>
#include <ATen/ops/leaky_relu_backward_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_backward_meta.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/leaky_relu_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_meta.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/logit_backward_cpu_dispatch.h>
#include <ATen/ops/logit_backward_meta.h>
#include <ATen/ops/logit_backward_ops.h>
#include <ATen/ops/mish_cpu_dispatch.h>
#include <ATen/ops/mish_meta.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/sigmoid_backward_meta.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_cpu_dispatch.h>
#include <ATen/ops/silu_backward_meta.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/silu_meta.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/softplus_backward_cpu_dispatch.h>
#include <ATen/ops/softplus_backward_meta.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softplus_cpu_dispatch.h>
#include <ATen/ops/softplus_meta.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/softshrink_backward_cpu_dispatch.h>
#include <ATen/ops/softshrink_backward_meta.h>
#include <ATen/ops/softshrink_backward_ops.h>
#include <ATen/ops/softshrink_cpu_dispatch.h>
#include <ATen/ops/softshrink_meta.h>
#include <ATen/ops/softshrink_ops.h>
#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <ATen/ops/tanh_backward_meta.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/threshold_cpu_dispatch.h>
#include <ATen/ops/threshold_meta.h>
#include <ATen/ops/threshold_ops.h>

namespace loom::ops {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_gelu, Elementwise<12>, op::gelu_out, cpu::gelu_outf, op::gelu,
             op::gelu_>(m);
  structured<meta::structured_gelu_backward, Elementwise<16>, op::gelu_backward_grad_input,
             cpu::gelu_backward_outf, op::gelu_backward>(m);
  structured<meta::structured_sigmoid, Elementwise<6>, op::sigmoid_out, cpu::sigmoid_outf,
             op::sigmoid, op::sigmoid_>(m);
  structured<meta::structured_sigmoid_backward, Elementwise<2>, op::sigmoid_backward_grad_input,
             cpu::sigmoid_backward_outf, op::sigmoid_backward>(m);
  structured<meta::structured_tanh_backward, Elementwise<2>, op::tanh_backward_grad_input,
             cpu::tanh_backward_outf, op::tanh_backward>(m);
  structured<meta::structured_silu, Elementwise<7>, op::silu_out, cpu::silu_outf, op::silu,
             op::silu_>(m);
  structured<meta::structured_silu_backward, Elementwise<9>, op::silu_backward_grad_input,
             cpu::silu_backward_outf, op::silu_backward>(m);
  structured<meta::structured_mish, Elementwise<16>, op::mish_out, cpu::mish_outf, op::mish,
             op::mish_>(m);
  structured<meta::structured_threshold, Elementwise<1>, op::threshold_out, cpu::threshold_outf,
             op::threshold, op::threshold_>(m);
  structured<meta::structured_threshold_backward, Elementwise<1>, op::threshold_backward_grad_input,
             cpu::threshold_backward_outf, op::threshold_backward>(m);
  structured<meta::structured_hardshrink, Elementwise<1>, op::hardshrink_out, cpu::hardshrink_outf,
             op::hardshrink>(m);
  structured<meta::structured_hardshrink_backward, Elementwise<1>,
             op::hardshrink_backward_grad_input, cpu::hardshrink_backward_outf,
             op::hardshrink_backward>(m);
  structured<meta::structured_softshrink, Elementwise<1>, op::softshrink_out, cpu::softshrink_outf,
             op::softshrink>(m);
  structured<meta::structured_softshrink_backward, Elementwise<1>,
             op::softshrink_backward_grad_input, cpu::softshrink_backward_outf,
             op::softshrink_backward>(m);
  structured<meta::structured_elu, Elementwise<6>, op::elu_out, cpu::elu_outf, op::elu, op::elu_>(
      m);
  structured<meta::structured_elu_backward, Elementwise<6>, op::elu_backward_grad_input,
             cpu::elu_backward_outf, op::elu_backward>(m);
  structured<meta::structured_hardsigmoid, Elementwise<2>, op::hardsigmoid_out,
             cpu::hardsigmoid_outf, op::hardsigmoid, op::hardsigmoid_>(m);
  structured<meta::structured_hardsigmoid_backward, Elementwise<2>,
             op::hardsigmoid_backward_grad_input, cpu::hardsigmoid_backward_outf,
             op::hardsigmoid_backward>(m);
  structured<meta::structured_leaky_relu, Elementwise<1>, op::leaky_relu_out, cpu::leaky_relu_outf,
             op::leaky_relu, op::leaky_relu_>(m);
  structured<meta::structured_leaky_relu_backward, Elementwise<1>,
             op::leaky_relu_backward_grad_input, cpu::leaky_relu_backward_outf,
             op::leaky_relu_backward>(m);
  structured<meta::structured_softplus, Elementwise<12>, op::softplus_out, cpu::softplus_outf,
             op::softplus>(m);
  structured<meta::structured_softplus_backward, Elementwise<8>, op::softplus_backward_grad_input,
             cpu::softplus_backward_outf, op::softplus_backward>(m);
  structured<meta::structured_logit_backward, Elementwise<4>, op::logit_backward_grad_input,
             cpu::logit_backward_outf, op::logit_backward>(m);
}

}  // namespace loom::ops
