// SPDX-License-Identifier: BSD-3-Clause
// Comparisons, extrema and bitwise logic.
#include "loom/ops/structured.h"

#include <ATen/ops/bitwise_and_cpu_dispatch.h>
#include <ATen/ops/bitwise_and_meta.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_left_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_left_shift_meta.h>
#include <ATen/ops/bitwise_left_shift_ops.h>
#include <ATen/ops/bitwise_or_cpu_dispatch.h>
#include <ATen/ops/bitwise_or_meta.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_right_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_right_shift_meta.h>
#include <ATen/ops/bitwise_right_shift_ops.h>
#include <ATen/ops/bitwise_xor_cpu_dispatch.h>
#include <ATen/ops/bitwise_xor_meta.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/fmax_cpu_dispatch.h>
#include <ATen/ops/fmax_meta.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_cpu_dispatch.h>
#include <ATen/ops/fmin_meta.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/ge_cpu_dispatch.h>
#include <ATen/ops/ge_meta.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_cpu_dispatch.h>
#include <ATen/ops/gt_meta.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/le_cpu_dispatch.h>
#include <ATen/ops/le_meta.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lt_cpu_dispatch.h>
#include <ATen/ops/lt_meta.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/maximum_meta.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_cpu_dispatch.h>
#include <ATen/ops/minimum_meta.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/ne_cpu_dispatch.h>
#include <ATen/ops/ne_meta.h>
#include <ATen/ops/ne_ops.h>

namespace loom::ops {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_eq_Scalar, Elementwise<1>, op::eq_Scalar_out, cpu::eq_outf,
             op::eq_Scalar, op::eq__Scalar>(m);
  structured<meta::structured_eq_Tensor, Elementwise<1>, op::eq_Tensor_out, cpu::eq_outf,
             op::eq_Tensor, op::eq__Tensor>(m);
  structured<meta::structured_ne_Scalar, Elementwise<1>, op::ne_Scalar_out, cpu::ne_outf,
             op::ne_Scalar, op::ne__Scalar>(m);
  structured<meta::structured_ne_Tensor, Elementwise<1>, op::ne_Tensor_out, cpu::ne_outf,
             op::ne_Tensor, op::ne__Tensor>(m);
  structured<meta::structured_lt_Scalar, Elementwise<1>, op::lt_Scalar_out, cpu::lt_outf,
             op::lt_Scalar, op::lt__Scalar>(m);
  structured<meta::structured_lt_Tensor, Elementwise<1>, op::lt_Tensor_out, cpu::lt_outf,
             op::lt_Tensor, op::lt__Tensor>(m);
  structured<meta::structured_le_Scalar, Elementwise<1>, op::le_Scalar_out, cpu::le_outf,
             op::le_Scalar, op::le__Scalar>(m);
  structured<meta::structured_le_Tensor, Elementwise<1>, op::le_Tensor_out, cpu::le_outf,
             op::le_Tensor, op::le__Tensor>(m);
  structured<meta::structured_gt_Scalar, Elementwise<1>, op::gt_Scalar_out, cpu::gt_outf,
             op::gt_Scalar, op::gt__Scalar>(m);
  structured<meta::structured_gt_Tensor, Elementwise<1>, op::gt_Tensor_out, cpu::gt_outf,
             op::gt_Tensor, op::gt__Tensor>(m);
  structured<meta::structured_ge_Scalar, Elementwise<1>, op::ge_Scalar_out, cpu::ge_outf,
             op::ge_Scalar, op::ge__Scalar>(m);
  structured<meta::structured_ge_Tensor, Elementwise<1>, op::ge_Tensor_out, cpu::ge_outf,
             op::ge_Tensor, op::ge__Tensor>(m);
  structured<meta::structured_maximum, Elementwise<1>, op::maximum_out, cpu::maximum_outf,
             op::maximum>(m);
  structured<meta::structured_minimum, Elementwise<1>, op::minimum_out, cpu::minimum_outf,
             op::minimum>(m);
  structured<meta::structured_fmax, Elementwise<2>, op::fmax_out, cpu::fmax_outf, op::fmax>(m);
  structured<meta::structured_fmin, Elementwise<2>, op::fmin_out, cpu::fmin_outf, op::fmin>(m);
  structured<meta::structured_bitwise_and_Tensor, Elementwise<1>, op::bitwise_and_Tensor_out,
             cpu::bitwise_and_outf, op::bitwise_and_Tensor, op::bitwise_and__Tensor>(m);
  structured<meta::structured_bitwise_or_Tensor, Elementwise<1>, op::bitwise_or_Tensor_out,
             cpu::bitwise_or_outf, op::bitwise_or_Tensor, op::bitwise_or__Tensor>(m);
  structured<meta::structured_bitwise_xor_Tensor, Elementwise<1>, op::bitwise_xor_Tensor_out,
             cpu::bitwise_xor_outf, op::bitwise_xor_Tensor, op::bitwise_xor__Tensor>(m);
  structured<meta::structured_bitwise_left_shift_Tensor, Elementwise<2>,
             op::bitwise_left_shift_Tensor_out, cpu::bitwise_left_shift_outf,
             op::bitwise_left_shift_Tensor, op::bitwise_left_shift__Tensor>(m);
  structured<meta::structured_bitwise_right_shift_Tensor, Elementwise<2>,
             op::bitwise_right_shift_Tensor_out, cpu::bitwise_right_shift_outf,
             op::bitwise_right_shift_Tensor, op::bitwise_right_shift__Tensor>(m);
}

}  // namespace loom::ops
