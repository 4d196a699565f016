// SPDX-License-Identifier: BSD-3-Clause
// Matrix products, cut along rows, columns or the batch.
#include "loom/ops/empty.h"
#include "loom/ops/structured.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_addmm_activation_cpu_dispatch.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_native.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/vdot_native.h>

#include <algorithm>

namespace loom::ops {
namespace {

constexpr std::int8_t kWhole = SlicePlan::kWhole;

// One multiply-add of a product, in the unit of Pointwise's cost.
constexpr double kFlopPairCost = 0.07;
// Below this a product is not worth cutting: some 30 us on one core.
constexpr double kSmallProduct = 100'000;

/// Rows or columns of a block. Every block packs the other operand anew, so blocks are not as small
/// as they could be.
std::int64_t product_block(std::int64_t items) {
  return std::clamp<std::int64_t>((items / 8 + 15) / 16 * 16, 64, 256);
}

/// `dim` of an addend that broadcasts to the result, if it is as long as the result's.
std::int8_t addend_dim(const at::Tensor& result, const at::Tensor& addend, std::int64_t dim) {
  const std::int64_t own = dim - (result.dim() - addend.dim());
  return own >= 0 && addend.size(own) == result.size(dim) ? static_cast<std::int8_t>(own) : kWhole;
}

/// Throws PyTorch's message unless the addend broadcasts to the result.
void check_addend(const at::Tensor& result, const at::Tensor& addend) {
  if (!at::is_expandable_to(addend.sizes(), result.sizes())) (void)addend.expand(result.sizes());
}

/// How result = left x right is cut: the dimension of result, left and right that a block is of.
struct ProductCut {
  std::int8_t result = kWhole, left = kWhole, right = kWhole;
  std::int64_t block = 1;
};

ProductCut cut_product(const at::Tensor& result, const at::Tensor& left) {
  const bool batched = result.dim() == 3;
  const std::int64_t batch = batched ? result.size(0) : 1;
  const std::int64_t rows = result.size(-2);
  const std::int64_t columns = result.size(-1);
  const double product = kFlopPairCost * static_cast<double>(rows) * static_cast<double>(columns) *
                         static_cast<double>(left.size(-1));
  if (product * static_cast<double>(batch) < 2 * kSmallProduct) return {};
  if (batch >= 8 || (batch > 1 && product < 2 * kSmallProduct)) {
    const double items = std::clamp(kSmallProduct / product, 1.0, static_cast<double>(batch));
    return {0, 0, 0, static_cast<std::int64_t>(items)};
  }
  const std::int8_t row = batched ? 1 : 0;
  if (rows >= columns) return {row, row, kWhole, product_block(rows)};
  const auto column = static_cast<std::int8_t>(row + 1);
  return {column, kWhole, column, product_block(columns)};
}

struct Product {
  static constexpr bool kProbesDtypes = true;

  // mm, bmm
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& left,
                     const at::Tensor&) {
    const ProductCut cut = cut_product(outputs[0], left);
    return {.dims = {cut.result, cut.left, cut.right}, .block = cut.block};
  }

  // addmm, baddbmm
  template <class... Factors>
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& addend,
                     const at::Tensor& left, const at::Tensor&, const at::Scalar&,
                     const at::Scalar&, Factors...) {
    check_addend(outputs[0], addend);
    const ProductCut cut = cut_product(outputs[0], left);
    const std::int8_t added =
        cut.result == kWhole ? kWhole : addend_dim(outputs[0], addend, cut.result);
    return {.dims = {cut.result, added, cut.left, cut.right}, .block = cut.block};
  }
};

struct MatrixVector {
  static constexpr bool kProbesDtypes = true;

  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& addend,
                     const at::Tensor& matrix, const at::Tensor&, const at::Scalar&,
                     const at::Scalar&) {
    check_addend(outputs[0], addend);
    // Rows are read once, from memory: a block is cheap but for that.
    const double cost = 0.5 * static_cast<double>(matrix.size(1));
    return {.dims = {0, addend_dim(outputs[0], addend, 0), 0, kWhole}, .cost = cost};
  }
};

template <at::Tensor (*kNative)(const at::Tensor&, const at::Tensor&)>
at::Tensor inner_product(const char* name, const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(),
              "] to have the same number of elements, but got ", self.numel(), " and ",
              other.numel(), " elements respectively");
  at::Tensor result = empty({}, self.scalar_type(), self.device());
  const auto kernel = [](const at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
    to.copy_(kNative(a, b));
  };
  launch(name, Whole{}, kernel, out(result), self, other);
  return result;
}

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  return inner_product<at::native::dot>("dot", self, other);
}
at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  return inner_product<at::native::vdot>("vdot", self, other);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_mm, Product, op::mm_out, cpu::mm_outf, op::mm>(m);
  structured<meta::structured_bmm, Product, op::bmm_out, cpu::bmm_outf, op::bmm>(m);
  structured<meta::structured_addmm, Product, op::addmm_out, cpu::addmm_outf, op::addmm,
             op::addmm_>(m);
  structured<meta::structured_baddbmm, Product, op::baddbmm_out, cpu::baddbmm_outf, op::baddbmm,
             op::baddbmm_>(m);
  structured<meta::structured__addmm_activation, Product, op::_addmm_activation_out,
             cpu::_addmm_activation_outf, op::_addmm_activation>(m);
  structured<meta::structured_addmv, MatrixVector, op::addmv_out, cpu::addmv_outf, op::addmv,
             op::addmv_>(m);
  m.impl("dot", TORCH_FN(dot));
  m.impl("vdot", TORCH_FN(vdot));
}

}  // namespace loom::ops
