// SPDX-License-Identifier: BSD-3-Clause
// Products of int8 matrices (_int_mm), oneDNN's in blocks of rows or of columns: the other side is
// packed for each block. What is not for it is deferred.
#include "loom/ops/aten/policy/product.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/ops/_int_mm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

bool is_matrix(const at::Tensor& tensor) {
  return tensor.dim() == 2 && tensor.scalar_type() == c10::kChar && tensor.numel() > 0 &&
         tensor.layout() == c10::kStrided && !tensor._is_zerotensor();
}

at::Tensor int_mm(const at::Tensor& left, const at::Tensor& right) {
  if (!is_matrix(left) || !is_matrix(right) || left.size(1) != right.size(0) ||
      left.device() != right.device()) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>("aten::_int_mm", "",
                                                                           left, right);
  }
  at::Tensor result = empty({left.size(0), right.size(1)}, c10::kInt, left.device());
  const ProductCut cut = cut_product(result, left);
  const auto kernel = [](const at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
    // Columns of the result have gaps, which the kernel does not know.
    at::Tensor made = to.is_contiguous() ? to : at::empty(to.sizes(), to.options());
    at::cpu::_int_mm_out(made, a, b);
    if (!to.is_contiguous()) to.copy_(made);
  };
  launch("_int_mm", Along{.dims = {cut.result, cut.left, cut.right}, .block = cut.block}, kernel,
         out(result), left, right);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_int_mm", TORCH_FN(int_mm)); }

}  // namespace loom::ops
