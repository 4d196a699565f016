// SPDX-License-Identifier: BSD-3-Clause
// Reductions that ATen has no structured form of: variances, sums without NaN, and extrema of whole
// tensors.
#include "loom/ops/policy/along_kept.h"
#include "loom/ops/policy/in_parts.h"

#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/nansum_native.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/std_native.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean_native.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_native.h>
#include <ATen/ops/var_ops.h>

namespace loom::ops {
namespace {

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

struct NansumMeta : at::impl::MetaBase {
  void meta(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim,
            std::optional<c10::ScalarType> dtype) {
    // Without a dtype a given result decides, whatever it is.
    const at::Tensor& given = maybe_get_output();
    if (!dtype && given.defined()) dtype = given.scalar_type();
    TORCH_CHECK(!given.defined() || given.scalar_type() == dtype,
                "nansum: provided dtype must match dtype of result. Got ", given.scalar_type(),
                " and ", *dtype, ".");
    const c10::ScalarType to = at::native::get_dtype_from_self(self, dtype, true);
    const auto mask = at::native::make_dim_mask(dims, self.dim());
    set_output_raw_strided(0, at::native::shape_from_dim_mask(self, mask, keepdim), {},
                           self.options().dtype(to));
  }
};

struct Nansum {
  static c10::ScalarType accumulator(c10::ScalarType dtype) { return Sum::accumulator(dtype); }
  static void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) {
    at::native::nansum_out(in, dims, keepdim, to.scalar_type(), to);
  }
  static void combine(const at::Tensor& parts, double elements, at::Tensor& to) {
    Sum::combine(parts, elements, to);
  }
};

template <class Op>
using NansumForm =
    detail::StructuredForm<Op, NansumMeta, InParts<Nansum, 2>, at::native::nansum_out>;

// CUDA takes complex numbers, too.
at::Tensor nansum(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim,
                  std::optional<c10::ScalarType> dtype) {
  if (!self.is_complex()) return NansumForm<at::_ops::nansum>::call(self, dims, keepdim, dtype);
  return at::sum(self.masked_fill(self.ne(self), 0), dims, keepdim, dtype);
}

at::Tensor& nansum_out(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim,
                       std::optional<c10::ScalarType> dtype, at::Tensor& out) {
  if (!self.is_complex()) {
    return NansumForm<at::_ops::nansum_out>::call(self, dims, keepdim, dtype, out);
  }
  return at::sum_out(out, self.masked_fill(self.ne(self), 0), dims, keepdim, dtype);
}

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
  namespace op = at::_ops;
  structured<VarianceMeta<1>, AlongKept<4>, op::var_correction_out, at::native::var_out,
             op::var_correction>(m);
  structured<VarianceMeta<1>, AlongKept<4>, op::std_correction_out, at::native::std_out,
             op::std_correction>(m);
  structured<VarianceMeta<2>, AlongKept<4>, op::var_mean_correction_out,
             at::native::var_mean_correction_out, op::var_mean_correction>(m);
  m.impl("nansum", TORCH_FN(nansum));
  m.impl("nansum.out", TORCH_FN(nansum_out));
  m.impl("max", TORCH_FN(max));
  m.impl("min", TORCH_FN(min));
}

}  // namespace loom::ops
