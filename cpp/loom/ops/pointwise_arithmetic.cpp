// SPDX-License-Identifier: BSD-3-Clause
// Pointwise arithmetic of two or three operands.
#include "loom/ops/structured.h"

#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcdiv_meta.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/addcmul_meta.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/atan2_cpu_dispatch.h>
#include <ATen/ops/atan2_meta.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/copysign_cpu_dispatch.h>
#include <ATen/ops/copysign_meta.h>
#include <ATen/ops/copysign_ops.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/fmod_cpu_dispatch.h>
#include <ATen/ops/fmod_meta.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/gcd_cpu_dispatch.h>
#include <ATen/ops/gcd_meta.h>
#include <ATen/ops/gcd_ops.h>
#include <ATen/ops/heaviside_cpu_dispatch.h>
#include <ATen/ops/heaviside_meta.h>
#include <ATen/ops/heaviside_ops.h>
#include <ATen/ops/hypot_cpu_dispatch.h>
#include <ATen/ops/hypot_meta.h>
#include <ATen/ops/hypot_ops.h>
#include <ATen/ops/lcm_cpu_dispatch.h>
#include <ATen/ops/lcm_meta.h>
#include <ATen/ops/lcm_ops.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <ATen/ops/lerp_meta.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/logaddexp2_cpu_dispatch.h>
#include <ATen/ops/logaddexp2_meta.h>
#include <ATen/ops/logaddexp2_ops.h>
#include <ATen/ops/logaddexp_cpu_dispatch.h>
#include <ATen/ops/logaddexp_meta.h>
#include <ATen/ops/logaddexp_ops.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/nextafter_cpu_dispatch.h>
#include <ATen/ops/nextafter_meta.h>
#include <ATen/ops/nextafter_ops.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#include <ATen/ops/pow_meta.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/remainder_cpu_dispatch.h>
#include <ATen/ops/remainder_meta.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/xlogy_cpu_dispatch.h>
#include <ATen/ops/xlogy_meta.h>
#include <ATen/ops/xlogy_ops.h>

namespace loom::ops {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_add_Tensor, Elementwise<1>, op::add_out, cpu::add_outf,
             op::add_Tensor, op::add__Tensor>(m);
  structured<meta::structured_sub_Tensor, Elementwise<1>, op::sub_out, cpu::sub_outf,
             op::sub_Tensor, op::sub__Tensor>(m);
  structured<meta::structured_mul_Tensor, Elementwise<1>, op::mul_out, cpu::mul_outf,
             op::mul_Tensor, op::mul__Tensor>(m);
  structured<meta::structured_div_Tensor, Elementwise<2>, op::div_out, cpu::div_outf,
             op::div_Tensor, op::div__Tensor>(m);
  structured<meta::structured_div_Tensor_mode, Elementwise<4>, op::div_out_mode, cpu::div_outf,
             op::div_Tensor_mode, op::div__Tensor_mode>(m);
  structured<meta::structured_fmod_Tensor, Elementwise<12>, op::fmod_Tensor_out, cpu::fmod_outf,
             op::fmod_Tensor, op::fmod__Tensor>(m);
  structured<meta::structured_remainder_Tensor, Elementwise<12>, op::remainder_Tensor_out,
             cpu::remainder_outf, op::remainder_Tensor, op::remainder__Tensor>(m);
  structured<meta::structured_pow_Tensor_Tensor, Elementwise<16>, op::pow_Tensor_Tensor_out,
             cpu::pow_outf, op::pow_Tensor_Tensor, op::pow__Tensor>(m);
  structured<meta::structured_pow_Tensor_Scalar, Elementwise<8>, op::pow_Tensor_Scalar_out,
             cpu::pow_outf, op::pow_Tensor_Scalar, op::pow__Scalar>(m);
  structured<meta::structured_pow_Scalar, Elementwise<16>, op::pow_Scalar_out, cpu::pow_outf,
             op::pow_Scalar>(m);
  structured<meta::structured_atan2, Elementwise<12>, op::atan2_out, cpu::atan2_outf, op::atan2,
             op::atan2_>(m);
  structured<meta::structured_hypot, Elementwise<4>, op::hypot_out, cpu::hypot_outf, op::hypot,
             op::hypot_>(m);
  structured<meta::structured_copysign_Tensor, Elementwise<1>, op::copysign_out, cpu::copysign_outf,
             op::copysign_Tensor, op::copysign__Tensor>(m);
  structured<meta::structured_addcmul, Elementwise<2>, op::addcmul_out, cpu::addcmul_outf,
             op::addcmul, op::addcmul_>(m);
  structured<meta::structured_addcdiv, Elementwise<2>, op::addcdiv_out, cpu::addcdiv_outf,
             op::addcdiv, op::addcdiv_>(m);
  structured<meta::structured_lerp_Scalar, Elementwise<2>, op::lerp_Scalar_out, cpu::lerp_outf,
             op::lerp_Scalar, op::lerp__Scalar>(m);
  structured<meta::structured_lerp_Tensor, Elementwise<2>, op::lerp_Tensor_out, cpu::lerp_outf,
             op::lerp_Tensor, op::lerp__Tensor>(m);
  structured<meta::structured_logaddexp, Elementwise<12>, op::logaddexp_out, cpu::logaddexp_outf,
             op::logaddexp>(m);
  structured<meta::structured_logaddexp2, Elementwise<12>, op::logaddexp2_out, cpu::logaddexp2_outf,
             op::logaddexp2>(m);
  structured<meta::structured_xlogy_Tensor, Elementwise<8>, op::xlogy_OutTensor, cpu::xlogy_outf,
             op::xlogy_Tensor, op::xlogy__Tensor>(m);
  structured<meta::structured_gcd, Elementwise<30>, op::gcd_out, cpu::gcd_outf, op::gcd, op::gcd_>(
      m);
  structured<meta::structured_lcm, Elementwise<30>, op::lcm_out, cpu::lcm_outf, op::lcm, op::lcm_>(
      m);
  structured<meta::structured_nextafter, Elementwise<4>, op::nextafter_out, cpu::nextafter_outf,
             op::nextafter, op::nextafter_>(m);
  structured<meta::structured_heaviside, Elementwise<2>, op::heaviside_out, cpu::heaviside_outf,
             op::heaviside, op::heaviside_>(m);
}

}  // namespace loom::ops
