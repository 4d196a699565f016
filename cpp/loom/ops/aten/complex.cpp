// SPDX-License-Identifier: BSD-3-Clause
// Complex numbers from two real ones: complex and polar.
#include "loom/backend/registration.h"
#include "loom/ops/aten/structured.h"

#include <ATen/ops/complex_native.h>
#include <ATen/ops/complex_ops.h>
#include <ATen/ops/polar_native.h>
#include <ATen/ops/polar_ops.h>

namespace loom::ops {
namespace {

bool has_complex(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kHalf;
}

struct ComplexMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& first, const at::Tensor& second) {
    const auto dtype = first.scalar_type();
    TORCH_CHECK(has_complex(dtype) && has_complex(second.scalar_type()),
                "Expected both inputs to be Half, Float or Double tensors but got ", dtype, " and ",
                second.scalar_type());
    TORCH_CHECK(dtype == second.scalar_type(), "Expected object of scalar type ", dtype,
                " but got scalar type ", second.scalar_type(), " for second argument");
    const auto complex = c10::toComplexType(dtype);
    const at::Tensor& given = maybe_get_output();
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).add_output(given).add_const_input(first).add_const_input(
        second);
    if (given.defined()) {
      TORCH_CHECK(given.scalar_type() == complex, "Expected object of scalar type ", complex,
                  " but got scalar type ", given.scalar_type(), " for argument 'out'");
    } else {
      config.declare_static_dtype(complex);
    }
    build(config);
  }
};

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<ComplexMeta, Elementwise<2>, at::_ops::complex_out, at::native::complex_out,
             at::_ops::complex>(m);
  structured<ComplexMeta, Elementwise<20>, at::_ops::polar_out, at::native::polar_out,
             at::_ops::polar>(m);
}

}  // namespace loom::ops
