// SPDX-License-Identifier: BSD-3-Clause
// Special functions.
#include "loom/ops/structured.h"

#include <ATen/ops/digamma_cpu_dispatch.h>
#include <ATen/ops/digamma_meta.h>
#include <ATen/ops/digamma_ops.h>
#include <ATen/ops/i0_cpu_dispatch.h>
#include <ATen/ops/i0_meta.h>
#include <ATen/ops/i0_ops.h>
#include <ATen/ops/igamma_cpu_dispatch.h>
#include <ATen/ops/igamma_meta.h>
#include <ATen/ops/igamma_ops.h>
#include <ATen/ops/igammac_cpu_dispatch.h>
#include <ATen/ops/igammac_meta.h>
#include <ATen/ops/igammac_ops.h>
#include <ATen/ops/lgamma_cpu_dispatch.h>
#include <ATen/ops/lgamma_meta.h>
#include <ATen/ops/lgamma_ops.h>
#include <ATen/ops/polygamma_cpu_dispatch.h>
#include <ATen/ops/polygamma_meta.h>
#include <ATen/ops/polygamma_ops.h>
#include <ATen/ops/sinc_cpu_dispatch.h>
#include <ATen/ops/sinc_meta.h>
#include <ATen/ops/sinc_ops.h>
#include <ATen/ops/special_airy_ai_cpu_dispatch.h>
#include <ATen/ops/special_airy_ai_meta.h>
#include <ATen/ops/special_airy_ai_ops.h>
#include <ATen/ops/special_bessel_j0_cpu_dispatch.h>
#include <ATen/ops/special_bessel_j0_meta.h>
#include <ATen/ops/special_bessel_j0_ops.h>
#include <ATen/ops/special_bessel_j1_cpu_dispatch.h>
#include <ATen/ops/special_bessel_j1_meta.h>
#include <ATen/ops/special_bessel_j1_ops.h>
#include <ATen/ops/special_bessel_y0_cpu_dispatch.h>
#include <ATen/ops/special_bessel_y0_meta.h>
#include <ATen/ops/special_bessel_y0_ops.h>
#include <ATen/ops/special_bessel_y1_cpu_dispatch.h>
#include <ATen/ops/special_bessel_y1_meta.h>
#include <ATen/ops/special_bessel_y1_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_t_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_u_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_v_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_w_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_w_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_w_ops.h>
#include <ATen/ops/special_entr_cpu_dispatch.h>
#include <ATen/ops/special_entr_meta.h>
#include <ATen/ops/special_entr_ops.h>
#include <ATen/ops/special_erfcx_cpu_dispatch.h>
#include <ATen/ops/special_erfcx_meta.h>
#include <ATen/ops/special_erfcx_ops.h>
#include <ATen/ops/special_hermite_polynomial_h_cpu_dispatch.h>
#include <ATen/ops/special_hermite_polynomial_h_meta.h>
#include <ATen/ops/special_hermite_polynomial_h_ops.h>
#include <ATen/ops/special_hermite_polynomial_he_cpu_dispatch.h>
#include <ATen/ops/special_hermite_polynomial_he_meta.h>
#include <ATen/ops/special_hermite_polynomial_he_ops.h>
#include <ATen/ops/special_i0e_cpu_dispatch.h>
#include <ATen/ops/special_i0e_meta.h>
#include <ATen/ops/special_i0e_ops.h>
#include <ATen/ops/special_i1_cpu_dispatch.h>
#include <ATen/ops/special_i1_meta.h>
#include <ATen/ops/special_i1_ops.h>
#include <ATen/ops/special_i1e_cpu_dispatch.h>
#include <ATen/ops/special_i1e_meta.h>
#include <ATen/ops/special_i1e_ops.h>
#include <ATen/ops/special_laguerre_polynomial_l_cpu_dispatch.h>
#include <ATen/ops/special_laguerre_polynomial_l_meta.h>
#include <ATen/ops/special_laguerre_polynomial_l_ops.h>
#include <ATen/ops/special_legendre_polynomial_p_cpu_dispatch.h>
#include <ATen/ops/special_legendre_polynomial_p_meta.h>
#include <ATen/ops/special_legendre_polynomial_p_ops.h>
#include <ATen/ops/special_log_ndtr_cpu_dispatch.h>
#include <ATen/ops/special_log_ndtr_meta.h>
#include <ATen/ops/special_log_ndtr_ops.h>
#include <ATen/ops/special_modified_bessel_i0_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_i0_meta.h>
#include <ATen/ops/special_modified_bessel_i0_ops.h>
#include <ATen/ops/special_modified_bessel_i1_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_i1_meta.h>
#include <ATen/ops/special_modified_bessel_i1_ops.h>
#include <ATen/ops/special_modified_bessel_k0_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_k0_meta.h>
#include <ATen/ops/special_modified_bessel_k0_ops.h>
#include <ATen/ops/special_modified_bessel_k1_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_k1_meta.h>
#include <ATen/ops/special_modified_bessel_k1_ops.h>
#include <ATen/ops/special_ndtri_cpu_dispatch.h>
#include <ATen/ops/special_ndtri_meta.h>
#include <ATen/ops/special_ndtri_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_cpu_dispatch.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_meta.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_cpu_dispatch.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_meta.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_ops.h>
#include <ATen/ops/special_spherical_bessel_j0_cpu_dispatch.h>
#include <ATen/ops/special_spherical_bessel_j0_meta.h>
#include <ATen/ops/special_spherical_bessel_j0_ops.h>
#include <ATen/ops/special_xlog1py_cpu_dispatch.h>
#include <ATen/ops/special_xlog1py_meta.h>
#include <ATen/ops/special_xlog1py_ops.h>
#include <ATen/ops/special_zeta_cpu_dispatch.h>
#include <ATen/ops/special_zeta_meta.h>
#include <ATen/ops/special_zeta_ops.h>

namespace loom::ops {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_sinc, Elementwise<30>, op::sinc_out, cpu::sinc_outf, op::sinc,
             op::sinc_>(m);
  structured<meta::structured_lgamma, Elementwise<30>, op::lgamma_out, cpu::lgamma_outf, op::lgamma,
             op::lgamma_>(m);
  structured<meta::structured_digamma, Elementwise<30>, op::digamma_out, cpu::digamma_outf,
             op::digamma, op::digamma_>(m);
  structured<meta::structured_polygamma, Elementwise<30>, op::polygamma_out, cpu::polygamma_outf,
             op::polygamma>(m);
  structured<meta::structured_i0, Elementwise<30>, op::i0_out, cpu::i0_outf, op::i0, op::i0_>(m);
  structured<meta::structured_igamma, Elementwise<30>, op::igamma_out, cpu::igamma_outf, op::igamma,
             op::igamma_>(m);
  structured<meta::structured_igammac, Elementwise<30>, op::igammac_out, cpu::igammac_outf,
             op::igammac, op::igammac_>(m);
  structured<meta::structured_special_entr, Elementwise<30>, op::special_entr_out,
             cpu::special_entr_outf, op::special_entr>(m);
  structured<meta::structured_special_ndtri, Elementwise<30>, op::special_ndtri_out,
             cpu::special_ndtri_outf, op::special_ndtri>(m);
  structured<meta::structured_special_log_ndtr, Elementwise<30>, op::special_log_ndtr_out,
             cpu::special_log_ndtr_outf, op::special_log_ndtr>(m);
  structured<meta::structured_special_erfcx, Elementwise<30>, op::special_erfcx_out,
             cpu::special_erfcx_outf, op::special_erfcx>(m);
  structured<meta::structured_special_xlog1py, Elementwise<30>, op::special_xlog1py_out,
             cpu::special_xlog1py_outf, op::special_xlog1py>(m);
  structured<meta::structured_special_zeta, Elementwise<30>, op::special_zeta_out,
             cpu::special_zeta_outf, op::special_zeta>(m);
  structured<meta::structured_special_i0e, Elementwise<30>, op::special_i0e_out,
             cpu::special_i0e_outf, op::special_i0e>(m);
  structured<meta::structured_special_i1, Elementwise<30>, op::special_i1_out, cpu::special_i1_outf,
             op::special_i1>(m);
  structured<meta::structured_special_i1e, Elementwise<30>, op::special_i1e_out,
             cpu::special_i1e_outf, op::special_i1e>(m);
  structured<meta::structured_special_airy_ai, Elementwise<30>, op::special_airy_ai_out,
             cpu::special_airy_ai_outf, op::special_airy_ai>(m);
  structured<meta::structured_special_bessel_j0, Elementwise<30>, op::special_bessel_j0_out,
             cpu::special_bessel_j0_outf, op::special_bessel_j0>(m);
  structured<meta::structured_special_bessel_j1, Elementwise<30>, op::special_bessel_j1_out,
             cpu::special_bessel_j1_outf, op::special_bessel_j1>(m);
  structured<meta::structured_special_bessel_y0, Elementwise<30>, op::special_bessel_y0_out,
             cpu::special_bessel_y0_outf, op::special_bessel_y0>(m);
  structured<meta::structured_special_bessel_y1, Elementwise<30>, op::special_bessel_y1_out,
             cpu::special_bessel_y1_outf, op::special_bessel_y1>(m);
  structured<meta::structured_special_chebyshev_polynomial_t, Elementwise<30>,
             op::special_chebyshev_polynomial_t_out, cpu::special_chebyshev_polynomial_t_outf,
             op::special_chebyshev_polynomial_t>(m);
  structured<meta::structured_special_chebyshev_polynomial_u, Elementwise<30>,
             op::special_chebyshev_polynomial_u_out, cpu::special_chebyshev_polynomial_u_outf,
             op::special_chebyshev_polynomial_u>(m);
  structured<meta::structured_special_chebyshev_polynomial_v, Elementwise<30>,
             op::special_chebyshev_polynomial_v_out, cpu::special_chebyshev_polynomial_v_outf,
             op::special_chebyshev_polynomial_v>(m);
  structured<meta::structured_special_chebyshev_polynomial_w, Elementwise<30>,
             op::special_chebyshev_polynomial_w_out, cpu::special_chebyshev_polynomial_w_outf,
             op::special_chebyshev_polynomial_w>(m);
  structured<meta::structured_special_hermite_polynomial_h, Elementwise<30>,
             op::special_hermite_polynomial_h_out, cpu::special_hermite_polynomial_h_outf,
             op::special_hermite_polynomial_h>(m);
  structured<meta::structured_special_hermite_polynomial_he, Elementwise<30>,
             op::special_hermite_polynomial_he_out, cpu::special_hermite_polynomial_he_outf,
             op::special_hermite_polynomial_he>(m);
  structured<meta::structured_special_laguerre_polynomial_l, Elementwise<30>,
             op::special_laguerre_polynomial_l_out, cpu::special_laguerre_polynomial_l_outf,
             op::special_laguerre_polynomial_l>(m);
  structured<meta::structured_special_legendre_polynomial_p, Elementwise<30>,
             op::special_legendre_polynomial_p_out, cpu::special_legendre_polynomial_p_outf,
             op::special_legendre_polynomial_p>(m);
  structured<meta::structured_special_modified_bessel_i0, Elementwise<30>,
             op::special_modified_bessel_i0_out, cpu::special_modified_bessel_i0_outf,
             op::special_modified_bessel_i0>(m);
  structured<meta::structured_special_modified_bessel_i1, Elementwise<30>,
             op::special_modified_bessel_i1_out, cpu::special_modified_bessel_i1_outf,
             op::special_modified_bessel_i1>(m);
  structured<meta::structured_special_modified_bessel_k0, Elementwise<30>,
             op::special_modified_bessel_k0_out, cpu::special_modified_bessel_k0_outf,
             op::special_modified_bessel_k0>(m);
  structured<meta::structured_special_modified_bessel_k1, Elementwise<30>,
             op::special_modified_bessel_k1_out, cpu::special_modified_bessel_k1_outf,
             op::special_modified_bessel_k1>(m);
  structured<meta::structured_special_scaled_modified_bessel_k0, Elementwise<30>,
             op::special_scaled_modified_bessel_k0_out, cpu::special_scaled_modified_bessel_k0_outf,
             op::special_scaled_modified_bessel_k0>(m);
  structured<meta::structured_special_scaled_modified_bessel_k1, Elementwise<30>,
             op::special_scaled_modified_bessel_k1_out, cpu::special_scaled_modified_bessel_k1_outf,
             op::special_scaled_modified_bessel_k1>(m);
  structured<meta::structured_special_shifted_chebyshev_polynomial_t, Elementwise<30>,
             op::special_shifted_chebyshev_polynomial_t_out,
             cpu::special_shifted_chebyshev_polynomial_t_outf,
             op::special_shifted_chebyshev_polynomial_t>(m);
  structured<meta::structured_special_shifted_chebyshev_polynomial_u, Elementwise<30>,
             op::special_shifted_chebyshev_polynomial_u_out,
             cpu::special_shifted_chebyshev_polynomial_u_outf,
             op::special_shifted_chebyshev_polynomial_u>(m);
  structured<meta::structured_special_shifted_chebyshev_polynomial_v, Elementwise<30>,
             op::special_shifted_chebyshev_polynomial_v_out,
             cpu::special_shifted_chebyshev_polynomial_v_outf,
             op::special_shifted_chebyshev_polynomial_v>(m);
  structured<meta::structured_special_shifted_chebyshev_polynomial_w, Elementwise<30>,
             op::special_shifted_chebyshev_polynomial_w_out,
             cpu::special_shifted_chebyshev_polynomial_w_outf,
             op::special_shifted_chebyshev_polynomial_w>(m);
  structured<meta::structured_special_spherical_bessel_j0, Elementwise<30>,
             op::special_spherical_bessel_j0_out, cpu::special_spherical_bessel_j0_outf,
             op::special_spherical_bessel_j0>(m);
}

}  // namespace loom::ops
