// SPDX-License-Identifier: BSD-3-Clause
// The rules of the results, and the Meta kernels: results without data, for whoever traces.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include "operators.h"

namespace custom_ops {

Result myadd_result(const at::Tensor& self, const at::Tensor& other) {
  return {at::infer_size_symdimvector(self.sym_sizes(), other.sym_sizes()),
          at::result_type(self, other)};
}

Result mymatmul_result(const at::Tensor& self, const at::Tensor& other) {
  const std::int64_t dims = self.dim();
  TORCH_CHECK((dims == 2 || dims == 3) && other.dim() == dims,
              "mymatmul: expected two matrices or two batches of matrices (2 or 3 dimensions each),"
              " got ",
              dims, " and ", other.dim(), " dimensions");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "mymatmul: expected operands of one dtype,"
              " got ",
              self.scalar_type(), " and ", other.scalar_type());
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
              "mymatmul: expected a floating or complex dtype, got ", self.scalar_type());
  const auto left = self.sym_sizes();
  const auto right = other.sym_sizes();
  TORCH_SYM_CHECK(
      left[dims - 1].sym_eq(right[dims - 2]), "mymatmul: sizes ", left, " and ", right,
      " do not fit: the columns of the first must be as many as the rows of the second");
  if (dims == 2) return {{left[0], right[1]}, self.scalar_type()};
  TORCH_SYM_CHECK(left[0].sym_eq(right[0]), "mymatmul: batches of ", left[0], " and ", right[0],
                  " matrices do not fit");
  return {{left[0], left[1], right[2]}, self.scalar_type()};
}

namespace {

/// One operand is a meta tensor; the other may be, or may be a CPU scalar.
at::Tensor empty_result(const Result& result, const at::Tensor& self, const at::Tensor& other) {
  for (const at::Tensor& operand : {self, other}) {
    TORCH_CHECK(operand.is_meta() || (operand.is_cpu() && operand.dim() == 0),
                "Expected all tensors to be on the same device, but found at least two devices, "
                "meta and ",
                operand.device(), "!");
  }
  return at::empty_symint(result.sizes, c10::TensorOptions(c10::kMeta).dtype(result.dtype));
}

at::Tensor myadd_meta(const at::Tensor& self, const at::Tensor& other) {
  return empty_result(myadd_result(self, other), self, other);
}

at::Tensor mymatmul_meta(const at::Tensor& self, const at::Tensor& other) {
  return empty_result(mymatmul_result(self, other), self, other);
}

}  // namespace

TORCH_LIBRARY_IMPL(custom_ops, Meta, m) {
  m.impl("myadd", TORCH_FN(myadd_meta));
  m.impl("mymatmul", TORCH_FN(mymatmul_meta));
}

}  // namespace custom_ops
