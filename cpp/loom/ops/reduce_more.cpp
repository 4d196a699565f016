// SPDX-License-Identifier: BSD-3-Clause
// Reductions along one dimension, norms, variances and scans.
#include "loom/ops/reduce_in_parts.h"
#include "loom/ops/structured.h"

#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/all_cpu_dispatch.h>
#include <ATen/ops/all_meta.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/aminmax_cpu_dispatch.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/any_cpu_dispatch.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_cpu_dispatch.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_cpu_dispatch.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/cumprod_cpu_dispatch.h>
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_cpu_dispatch.h>
#include <ATen/ops/cumsum_meta.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/max_cpu_dispatch.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_cpu_dispatch.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/norm_cpu_dispatch.h>
#include <ATen/ops/norm_meta.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/prod_cpu_dispatch.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/std_native.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/var_mean_native.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_native.h>
#include <ATen/ops/var_ops.h>

namespace loom::ops {
namespace {

namespace cpu = at::cpu;

/// Policy of reductions that are cut along kept dimensions only.
template <int kCost>
struct AlongKept {
  static constexpr bool kProbesDtypes = true;

  // (self, dim, keepdim, ...)
  template <std::size_t kOutputs, class Dim, class... More>
  static Along split(const std::array<at::Tensor, kOutputs>&, const at::Tensor& self,
                     const Dim& dim, bool keepdim, const More&...) {
    return cut_kept(self, reduced(self, dim, keepdim), kOutputs, kCost);
  }

  // norm: (self, p, dims, keepdim, ...)
  template <class... More>
  static Along split(const std::array<at::Tensor, 1>&, const at::Tensor& self,
                     const std::optional<at::Scalar>&, at::IntArrayRef dims, bool keepdim,
                     const More&...) {
    return cut_kept(self, reduced_dims(self, dims, keepdim), 1, kCost);
  }

  // var, std: (self, dims, correction, keepdim)
  template <std::size_t kOutputs>
  static Along split(const std::array<at::Tensor, kOutputs>&, const at::Tensor& self,
                     at::OptionalIntArrayRef dims, const std::optional<at::Scalar>&, bool keepdim) {
    return cut_kept(self, reduced_dims(self, dims, keepdim), kOutputs, kCost);
  }

 private:
  static Reduced reduced(const at::Tensor& self, std::int64_t dim, bool keepdim) {
    return reduced_dim(self, dim, keepdim);
  }
  static Reduced reduced(const at::Tensor& self, std::optional<std::int64_t> dim, bool keepdim) {
    return dim ? reduced_dim(self, *dim, keepdim) : reduced_dims(self, std::nullopt, keepdim);
  }
};

/// Policy of scans: the result has the shape of the input.
struct Scan {
  static constexpr bool kProbesDtypes = true;

  template <class... More>
  static Along split(const std::array<at::Tensor, 1>&, const at::Tensor& self, std::int64_t dim,
                     const More&...) {
    return cut_kept(self, reduced_dim(self, dim, /*keepdim=*/true), 1, /*cost=*/4);
  }
};

/// A norm of norms is the norm, whatever the order, but for 0 (which counts).
struct Norm {
  at::Scalar order;

  static c10::ScalarType accumulator(c10::ScalarType dtype) { return dtype; }
  void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) const {
    const bool complex = in.is_complex();
    const auto dtype = complex ? c10::toComplexType(to.scalar_type()) : to.scalar_type();
    cpu::linalg_vector_norm_outf(in, order, dims, keepdim, dtype, to);
  }
  void combine(const at::Tensor& parts, double, at::Tensor& to) const {
    cpu::linalg_vector_norm_outf(parts, order, c10::IntArrayRef{0}, false, parts.scalar_type(), to);
  }
};

struct VectorNorm {
  static constexpr bool kProbesDtypes = true;
  static constexpr double kCost = 2;

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, const at::Scalar& order, at::OptionalIntArrayRef dims,
                     bool keepdim, std::optional<at::ScalarType> dtype) {
    const Reduced reduced = reduced_dims(self, dims, keepdim);
    // A result of a narrower dtype than the partial ones is not something the kernel can write.
    const bool in_parts =
        order.toDouble() != 0 && !c10::isReducedFloatingType(outputs[0].scalar_type());
    const auto chunks = in_parts ? cut_reduced(self, reduced, kCost) : std::nullopt;
    if (chunks) {
      launch_in_parts(name, Norm{order}, outputs[0], self, *chunks, reduced);
    } else {
      launch_cpu<kCpu>(name, cut_kept(self, reduced, 1, kCost), outputs, self, order, dims, keepdim,
                       dtype);
    }
  }
};

template <int kOutputs>
struct VarianceMeta : at::impl::MetaBase {
  void meta(const at::Tensor& self, at::OptionalIntArrayRef dims, at::OptionalScalarRef,
            bool keepdim) {
    TORCH_CHECK(self.is_floating_point() || self.is_complex(),
                "std and var only support floating point and complex dtypes");
    const auto mask = at::native::make_dim_mask(dims, self.dim());
    const auto shape = at::native::shape_from_dim_mask(self, mask, keepdim);
    const auto real = self.options().dtype(c10::toRealValueType(self.scalar_type()));
    set_output_raw_strided(0, shape, {}, real);
    if constexpr (kOutputs == 2) set_output_raw_strided(1, shape, {}, self.options());
  }
};

at::Tensor max(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0,
              "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  return at::amax(self);
}

at::Tensor min(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0,
              "min(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  return at::amin(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_argmax, AlongKept<2>, op::argmax_out, cpu::argmax_outf, op::argmax>(
      m);
  structured<meta::structured_argmin, AlongKept<2>, op::argmin_out, cpu::argmin_outf, op::argmin>(
      m);
  structured<meta::structured_max_dim, AlongKept<2>, op::max_dim_max, cpu::max_outf, op::max_dim>(
      m);
  structured<meta::structured_min_dim, AlongKept<2>, op::min_dim_min, cpu::min_outf, op::min_dim>(
      m);
  structured<meta::structured_aminmax, OneBlock, op::aminmax_out, cpu::aminmax_outf, op::aminmax>(
      m);
  structured<meta::structured_any_dims, OneBlock, op::any_dims_out, cpu::any_outf, op::any_dims>(m);
  structured<meta::structured_all_dims, OneBlock, op::all_dims_out, cpu::all_outf, op::all_dims>(m);
  structured<meta::structured_prod_dim_int, AlongKept<1>, op::prod_int_out, cpu::prod_outf,
             op::prod_dim_int>(m);
  structured<meta::structured_norm_ScalarOpt_dim, AlongKept<2>, op::norm_out, cpu::norm_outf,
             op::norm_ScalarOpt_dim>(m);
  structured<meta::structured_norm_ScalarOpt_dim_dtype, AlongKept<2>, op::norm_dtype_out,
             cpu::norm_outf, op::norm_ScalarOpt_dim_dtype>(m);
  structured<meta::structured_linalg_vector_norm, VectorNorm, op::linalg_vector_norm_out,
             cpu::linalg_vector_norm_outf, op::linalg_vector_norm>(m);
  structured<meta::structured_cumsum, Scan, op::cumsum_out, cpu::cumsum_outf, op::cumsum,
             op::cumsum_>(m);
  structured<meta::structured_cumprod, Scan, op::cumprod_out, cpu::cumprod_outf, op::cumprod,
             op::cumprod_>(m);
  structured<VarianceMeta<1>, AlongKept<4>, op::var_correction_out, at::native::var_out,
             op::var_correction>(m);
  structured<VarianceMeta<1>, AlongKept<4>, op::std_correction_out, at::native::std_out,
             op::std_correction>(m);
  structured<VarianceMeta<2>, AlongKept<4>, op::var_mean_correction_out,
             at::native::var_mean_correction_out, op::var_mean_correction>(m);
  m.impl("max", TORCH_FN(max));
  m.impl("min", TORCH_FN(min));
}

}  // namespace loom::ops
