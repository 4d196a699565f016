// SPDX-License-Identifier: BSD-3-Clause
// Products of int8 matrices (_int_mm), oneDNN's in blocks of rows or of columns: the other side is
// packed for each block. What is not for it is deferred.
#include "loom/base/ceil_div.h"
#include "loom/ops/aten/policy/product.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/ops/_int_mm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

bool is_matrix(const at::Tensor& tensor) {
  return tensor.dim() == 2 && tensor.scalar_type() == c10::kChar && tensor.numel() > 0 &&
         tensor.layout() == c10::kStrided && !tensor._is_zerotensor();
}

/// Blocks as large as lets all cores have one: each packs the other side anew, and calling oneDNN
/// takes as long as some million products of bytes.
ProductCut cut_int_product(const at::Tensor& result, std::int64_t inner) {
  constexpr double kLeastBlock = 4e6, kBlock = 128e6, kMostBlocks = 16;
  constexpr std::int64_t kUnit = 16;
  const double products = static_cast<double>(result.numel()) * static_cast<double>(inner);
  if (products < 2 * kLeastBlock) return {};
  const auto pieces = static_cast<std::int64_t>(std::clamp(products / kBlock, 2.0, kMostBlocks));
  const std::int64_t rows = result.size(0), columns = result.size(1);
  const auto block = [=](std::int64_t count) {
    return round_up(ceil_div(count, pieces / 2 * 2), kUnit);
  };
  if (rows >= columns) return {0, 0, SlicePlan::kWhole, block(rows)};
  return {1, SlicePlan::kWhole, 1, block(columns)};
}

at::Tensor int_mm(const at::Tensor& left, const at::Tensor& right) {
  if (!is_matrix(left) || !is_matrix(right) || left.size(1) != right.size(0) ||
      left.device() != right.device()) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>("aten::_int_mm", "",
                                                                           left, right);
  }
  at::Tensor result = empty({left.size(0), right.size(1)}, c10::kInt, left.device());
  const ProductCut cut = cut_int_product(result, left.size(1));
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
