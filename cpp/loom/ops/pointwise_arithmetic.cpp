// SPDX-License-Identifier: BSD-3-Clause
// Pointwise arithmetic of two or three operands.
#include "loom/ops/structured.h"

#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_ops.h>

namespace loom::ops {
namespace {

namespace cpu = at::cpu;
namespace meta = at::meta;
namespace op = at::_ops;

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<meta::structured_add_Tensor, Elementwise<1>, op::add_out, cpu::add_outf,
             op::add_Tensor, op::add__Tensor>(m);
  structured<meta::structured_div_Tensor, Elementwise<2>, op::div_out, cpu::div_outf,
             op::div_Tensor, op::div__Tensor>(m);
  structured<meta::structured_div_Tensor_mode, Elementwise<2>, op::div_out_mode, cpu::div_outf,
             op::div_Tensor_mode, op::div__Tensor_mode>(m);
}

}  // namespace loom::ops
