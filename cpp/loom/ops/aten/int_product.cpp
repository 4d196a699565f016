// SPDX-License-Identifier: BSD-3-Clause
// Products of int8 matrices (_int_mm): of few rows with the columns of weights as linear layers
// have them, which are read where they lie; others are oneDNN's in blocks of rows or of columns,
// the other side packed for each block, where it is exact. What is not for it is deferred.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/aten/policy/product.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/byte_rows.h"

#include <ATen/ops/_int_mm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

bool is_matrix(const at::Tensor& tensor) {
  return tensor.dim() == 2 && tensor.scalar_type() == c10::kChar && tensor.numel() > 0 &&
         tensor.layout() == c10::kStrided && !tensor._is_zerotensor();
}

/// Whether oneDNN's sums are exact: on processors without products of four bytes it adds two
/// products in 16 bits, which are too few for bytes far from 0, and says nothing.
bool onednn_is_exact() {
  static const bool answer = [] {
    const at::Tensor bytes = at::full({32, 64}, 127, at::kChar);
    at::Tensor made = at::empty({32, 32}, at::kInt);
    at::cpu::_int_mm_out(made, bytes, bytes.t().contiguous());
    return made.min().item<std::int32_t>() == 64 * 127 * 127;
  }();
  return answer;
}

/// Dense, but for gaps between what lies along the other dimension.
bool is_dense_along(const at::Tensor& matrix, std::int64_t dim) {
  return matrix.stride(dim) == 1 && matrix.stride(1 - dim) >= matrix.size(dim);
}

/// Whether columns are rows of weights, and rows so few that packing these would take longer.
bool suits_byte_rows(const at::Tensor& left, const at::Tensor& right) {
  const std::int64_t most_rows = multiplies_bytes_by_four() ? 64 : 16;
  return left.size(0) <= most_rows && is_dense_along(left, 1) && is_dense_along(right, 0);
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

/// oneDNN reads what is expanded as if it were not.
at::Tensor in_memory(const at::Tensor& matrix) {
  return is_dense_along(matrix, 0) || is_dense_along(matrix, 1) ? matrix : matrix.contiguous();
}

void launch_int_mm(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right) {
  if (suits_byte_rows(left, right) || !onednn_is_exact()) {
    const at::Tensor rows = is_dense_along(left, 1) ? left : left.contiguous();
    const at::Tensor columns = is_dense_along(right, 0) ? right : right.t().contiguous().t();
    launch("_int_mm", Custom{}, byte_rows_product, out(result), rows, columns);
    return;
  }
  const ProductCut cut = cut_int_product(result, left.size(1));
  const auto kernel = [](const at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
    // Columns of the result have gaps, which the kernel does not know.
    at::Tensor made = to.is_contiguous() ? to : at::empty(to.sizes(), to.options());
    at::cpu::_int_mm_out(made, a, b);
    if (!to.is_contiguous()) to.copy_(made);
  };
  launch("_int_mm", Along{.dims = {cut.result, cut.left, cut.right}, .block = cut.block}, kernel,
         out(result), in_memory(left), in_memory(right));
}

bool are_factors(const at::Tensor& left, const at::Tensor& right) {
  return is_matrix(left) && is_matrix(right) && left.size(1) == right.size(0) &&
         left.device() == right.device();
}

at::Tensor int_mm(const at::Tensor& left, const at::Tensor& right) {
  if (!are_factors(left, right)) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>("aten::_int_mm", "",
                                                                           left, right);
  }
  at::Tensor result = empty({left.size(0), right.size(1)}, c10::kInt, left.device());
  launch_int_mm(result, left, right);
  return result;
}

at::Tensor& int_mm_out(const at::Tensor& left, const at::Tensor& right, at::Tensor& result) {
  if (!are_factors(left, right) || result.scalar_type() != c10::kInt ||
      result.device() != left.device() ||
      result.sizes() != c10::IntArrayRef({left.size(0), right.size(1)}) ||
      !result.is_contiguous()) {
    return call_fallback<at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor&>(
        "aten::_int_mm", "out", left, right, result);
  }
  launch_int_mm(result, left, right);
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_int_mm", TORCH_FN(int_mm));
  m.impl("_int_mm.out", TORCH_FN(int_mm_out));
}

}  // namespace loom::ops
