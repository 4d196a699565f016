// SPDX-License-Identifier: BSD-3-Clause
// Pointwise functions of one tensor.
#include "loom/ops/structured.h"

#include <ATen/ops/acos_cpu_dispatch.h>
#include <ATen/ops/acos_meta.h>
#include <ATen/ops/acos_ops.h>
#include <ATen/ops/acosh_cpu_dispatch.h>
#include <ATen/ops/acosh_meta.h>
#include <ATen/ops/acosh_ops.h>
#include <ATen/ops/asin_cpu_dispatch.h>
#include <ATen/ops/asin_meta.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/asinh_cpu_dispatch.h>
#include <ATen/ops/asinh_meta.h>
#include <ATen/ops/asinh_ops.h>
#include <ATen/ops/atan_cpu_dispatch.h>
#include <ATen/ops/atan_meta.h>
#include <ATen/ops/atan_ops.h>
#include <ATen/ops/atanh_cpu_dispatch.h>
#include <ATen/ops/atanh_meta.h>
#include <ATen/ops/atanh_ops.h>
#include <ATen/ops/bitwise_not_cpu_dispatch.h>
#include <ATen/ops/bitwise_not_meta.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/ceil_cpu_dispatch.h>
#include <ATen/ops/ceil_meta.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp_cpu_dispatch.h>
#include <ATen/ops/clamp_max_cpu_dispatch.h>
#include <ATen/ops/clamp_max_meta.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_meta.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/clamp_min_meta.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/cos_cpu_dispatch.h>
#include <ATen/ops/cos_meta.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cosh_cpu_dispatch.h>
#include <ATen/ops/cosh_meta.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/erf_cpu_dispatch.h>
#include <ATen/ops/erf_meta.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfc_cpu_dispatch.h>
#include <ATen/ops/erfc_meta.h>
#include <ATen/ops/erfc_ops.h>
#include <ATen/ops/erfinv_cpu_dispatch.h>
#include <ATen/ops/erfinv_meta.h>
#include <ATen/ops/erfinv_ops.h>
#include <ATen/ops/exp2_cpu_dispatch.h>
#include <ATen/ops/exp2_meta.h>
#include <ATen/ops/exp2_ops.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_cpu_dispatch.h>
#include <ATen/ops/expm1_meta.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_cpu_dispatch.h>
#include <ATen/ops/floor_meta.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/frac_cpu_dispatch.h>
#include <ATen/ops/frac_meta.h>
#include <ATen/ops/frac_ops.h>
#include <ATen/ops/isneginf_cpu_dispatch.h>
#include <ATen/ops/isneginf_meta.h>
#include <ATen/ops/isneginf_ops.h>
#include <ATen/ops/isposinf_cpu_dispatch.h>
#include <ATen/ops/isposinf_meta.h>
#include <ATen/ops/isposinf_ops.h>
#include <ATen/ops/log10_cpu_dispatch.h>
#include <ATen/ops/log10_meta.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/log1p_cpu_dispatch.h>
#include <ATen/ops/log1p_meta.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log2_cpu_dispatch.h>
#include <ATen/ops/log2_meta.h>
#include <ATen/ops/log2_ops.h>
#include <ATen/ops/log_cpu_dispatch.h>
#include <ATen/ops/log_meta.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/neg_cpu_dispatch.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/reciprocal_cpu_dispatch.h>
#include <ATen/ops/reciprocal_meta.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/round_cpu_dispatch.h>
#include <ATen/ops/round_meta.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_cpu_dispatch.h>
#include <ATen/ops/rsqrt_meta.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sgn_cpu_dispatch.h>
#include <ATen/ops/sgn_meta.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/sign_cpu_dispatch.h>
#include <ATen/ops/sign_meta.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/signbit_cpu_dispatch.h>
#include <ATen/ops/signbit_meta.h>
#include <ATen/ops/signbit_ops.h>
#include <ATen/ops/sin_cpu_dispatch.h>
#include <ATen/ops/sin_meta.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sinh_cpu_dispatch.h>
#include <ATen/ops/sinh_meta.h>
#include <ATen/ops/sinh_ops.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <ATen/ops/sqrt_meta.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/tan_cpu_dispatch.h>
#include <ATen/ops/tan_meta.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/trunc_cpu_dispatch.h>
#include <ATen/ops/trunc_meta.h>
#include <ATen/ops/trunc_ops.h>

namespace loom::ops {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_sgn, Elementwise<2>, op::sgn_out, cpu::sgn_outf, op::sgn, op::sgn_>(
      m);
  structured<meta::structured_neg, Elementwise<1>, op::neg_out, cpu::neg_outf, op::neg, op::neg_>(
      m);
  structured<meta::structured_sign, Elementwise<2>, op::sign_out, cpu::sign_outf, op::sign,
             op::sign_>(m);
  structured<meta::structured_signbit, Elementwise<1>, op::signbit_out, cpu::signbit_outf,
             op::signbit>(m);
  structured<meta::structured_ceil, Elementwise<1>, op::ceil_out, cpu::ceil_outf, op::ceil,
             op::ceil_>(m);
  structured<meta::structured_floor, Elementwise<1>, op::floor_out, cpu::floor_outf, op::floor,
             op::floor_>(m);
  structured<meta::structured_round, Elementwise<1>, op::round_out, cpu::round_outf, op::round,
             op::round_>(m);
  structured<meta::structured_round_decimals, Elementwise<2>, op::round_decimals_out,
             cpu::round_outf, op::round_decimals, op::round__decimals>(m);
  structured<meta::structured_trunc, Elementwise<1>, op::trunc_out, cpu::trunc_outf, op::trunc,
             op::trunc_>(m);
  structured<meta::structured_frac, Elementwise<2>, op::frac_out, cpu::frac_outf, op::frac,
             op::frac_>(m);
  structured<meta::structured_reciprocal, Elementwise<2>, op::reciprocal_out, cpu::reciprocal_outf,
             op::reciprocal, op::reciprocal_>(m);
  structured<meta::structured_sqrt, Elementwise<2>, op::sqrt_out, cpu::sqrt_outf, op::sqrt,
             op::sqrt_>(m);
  structured<meta::structured_rsqrt, Elementwise<3>, op::rsqrt_out, cpu::rsqrt_outf, op::rsqrt,
             op::rsqrt_>(m);
  structured<meta::structured_exp, Elementwise<4>, op::exp_out, cpu::exp_outf, op::exp, op::exp_>(
      m);
  structured<meta::structured_exp2, Elementwise<4>, op::exp2_out, cpu::exp2_outf, op::exp2,
             op::exp2_>(m);
  structured<meta::structured_expm1, Elementwise<8>, op::expm1_out, cpu::expm1_outf, op::expm1,
             op::expm1_>(m);
  structured<meta::structured_log, Elementwise<5>, op::log_out, cpu::log_outf, op::log, op::log_>(
      m);
  structured<meta::structured_log10, Elementwise<5>, op::log10_out, cpu::log10_outf, op::log10,
             op::log10_>(m);
  structured<meta::structured_log1p, Elementwise<8>, op::log1p_out, cpu::log1p_outf, op::log1p,
             op::log1p_>(m);
  structured<meta::structured_log2, Elementwise<5>, op::log2_out, cpu::log2_outf, op::log2,
             op::log2_>(m);
  structured<meta::structured_sin, Elementwise<8>, op::sin_out, cpu::sin_outf, op::sin, op::sin_>(
      m);
  structured<meta::structured_cos, Elementwise<8>, op::cos_out, cpu::cos_outf, op::cos, op::cos_>(
      m);
  structured<meta::structured_tan, Elementwise<10>, op::tan_out, cpu::tan_outf, op::tan, op::tan_>(
      m);
  structured<meta::structured_asin, Elementwise<8>, op::asin_out, cpu::asin_outf, op::asin,
             op::asin_>(m);
  structured<meta::structured_acos, Elementwise<8>, op::acos_out, cpu::acos_outf, op::acos,
             op::acos_>(m);
  structured<meta::structured_atan, Elementwise<8>, op::atan_out, cpu::atan_outf, op::atan,
             op::atan_>(m);
  structured<meta::structured_sinh, Elementwise<10>, op::sinh_out, cpu::sinh_outf, op::sinh,
             op::sinh_>(m);
  structured<meta::structured_cosh, Elementwise<10>, op::cosh_out, cpu::cosh_outf, op::cosh,
             op::cosh_>(m);
  structured<meta::structured_tanh, Elementwise<8>, op::tanh_out, cpu::tanh_outf, op::tanh,
             op::tanh_>(m);
  structured<meta::structured_asinh, Elementwise<12>, op::asinh_out, cpu::asinh_outf, op::asinh,
             op::asinh_>(m);
  structured<meta::structured_acosh, Elementwise<12>, op::acosh_out, cpu::acosh_outf, op::acosh,
             op::acosh_>(m);
  structured<meta::structured_atanh, Elementwise<12>, op::atanh_out, cpu::atanh_outf, op::atanh,
             op::atanh_>(m);
  structured<meta::structured_erf, Elementwise<8>, op::erf_out, cpu::erf_outf, op::erf, op::erf_>(
      m);
  structured<meta::structured_erfc, Elementwise<12>, op::erfc_out, cpu::erfc_outf, op::erfc,
             op::erfc_>(m);
  structured<meta::structured_erfinv, Elementwise<12>, op::erfinv_out, cpu::erfinv_outf, op::erfinv,
             op::erfinv_>(m);
  structured<meta::structured_bitwise_not, Elementwise<1>, op::bitwise_not_out,
             cpu::bitwise_not_outf, op::bitwise_not, op::bitwise_not_>(m);
  structured<meta::structured_isposinf, Elementwise<1>, op::isposinf_out, cpu::isposinf_outf,
             op::isposinf>(m);
  structured<meta::structured_isneginf, Elementwise<1>, op::isneginf_out, cpu::isneginf_outf,
             op::isneginf>(m);
  structured<meta::structured_clamp, Elementwise<1>, op::clamp_out, cpu::clamp_outf, op::clamp,
             op::clamp_>(m);
  structured<meta::structured_clamp_Tensor, Elementwise<2>, op::clamp_Tensor_out, cpu::clamp_outf,
             op::clamp_Tensor, op::clamp__Tensor>(m);
  structured<meta::structured_clamp_max, Elementwise<1>, op::clamp_max_out, cpu::clamp_max_outf,
             op::clamp_max, op::clamp_max_>(m);
  structured<meta::structured_clamp_max_Tensor, Elementwise<2>, op::clamp_max_Tensor_out,
             cpu::clamp_max_outf, op::clamp_max_Tensor, op::clamp_max__Tensor>(m);
  structured<meta::structured_clamp_min, Elementwise<1>, op::clamp_min_out, cpu::clamp_min_outf,
             op::clamp_min, op::clamp_min_>(m);
  structured<meta::structured_clamp_min_Tensor, Elementwise<2>, op::clamp_min_Tensor_out,
             cpu::clamp_min_outf, op::clamp_min_Tensor, op::clamp_min__Tensor>(m);
}

}  // namespace loom::ops
