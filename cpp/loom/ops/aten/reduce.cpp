// SPDX-License-Identifier: BSD-3-Clause
// Reductions that ATen has no structured form of: sums without NaN, products and extrema of
// whole tensors.
#include "loom/backend/registration.h"
#include "loom/ops/aten/policy/in_parts.h"

#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/nansum_native.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/prod_native.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sum.h>

namespace loom::ops {
namespace {

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
  static bool launch_own(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced) {
    return result.numel() == 1 && launch_sum_of_all(name, result, self, SumOfAll::kOfNumbers);
  }
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

struct ProdMeta : at::impl::MetaBase {
  void meta(const at::Tensor& self, std::optional<c10::ScalarType> dtype) {
    const at::Tensor& given = maybe_get_output();
    if (!dtype && given.defined()) dtype = given.scalar_type();
    const c10::ScalarType to = at::native::get_dtype_from_self(self, dtype, true);
    set_output_raw_strided(0, {}, {}, self.options().dtype(to));
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

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace op = at::_ops;
  m.impl("nansum", TORCH_FN(nansum));
  m.impl("nansum.out", TORCH_FN(nansum_out));
  structured<ProdMeta, InParts<Prod, 1>, op::prod_out, at::native::prod_out, op::prod>(m);
  m.impl("max", TORCH_FN(max));
  m.impl("min", TORCH_FN(min));
}

}  // namespace loom::ops
