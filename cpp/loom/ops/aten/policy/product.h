// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of matrix products, cut along rows, columns or the batch. Thread: any.

#include "loom/ops/aten/structured.h"
#include "loom/ops/recipes/product/blocked_product.h"
#include "loom/ops/recipes/product/matrix_vector.h"
#include "loom/ops/recipes/product/narrow_sums.h"
#include "loom/ops/recipes/product/small_products.h"
#include "loom/ops/recipes/product/thin_product.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/mul.h>

#include <algorithm>

namespace loom::ops {

// One multiply-add of a product, in the unit of Pointwise's cost.
inline constexpr double kFlopPairCost = 0.07;
// Below this a product is not worth cutting: some 30 us on one core.
inline constexpr double kSmallProduct = 100'000;

/// Rows or columns of a block. Every block packs the other operand anew, so blocks are not as small
/// as they could be.
inline std::int64_t product_block(std::int64_t items) {
  return std::clamp<std::int64_t>((items / 8 + 15) / 16 * 16, 64, 256);
}

/// `dim` of an addend that broadcasts to the result, if it is as long as the result's.
inline std::int8_t addend_dim(const at::Tensor& result, const at::Tensor& addend,
                              std::int64_t dim) {
  const std::int64_t own = dim - (result.dim() - addend.dim());
  return own >= 0 && addend.size(own) == result.size(dim) ? static_cast<std::int8_t>(own)
                                                          : SlicePlan::kWhole;
}

/// Throws PyTorch's message unless the addend broadcasts to the result.
inline void check_addend(const at::Tensor& result, const at::Tensor& addend) {
  if (!at::is_expandable_to(addend.sizes(), result.sizes())) (void)addend.expand(result.sizes());
}

/// How result = left x right is cut: the dimension of result, left and right that a block is of.
struct ProductCut {
  std::int8_t result = SlicePlan::kWhole, left = SlicePlan::kWhole, right = SlicePlan::kWhole;
  std::int64_t block = 1;
};

inline ProductCut cut_product(const at::Tensor& result, const at::Tensor& left) {
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
  if (rows >= columns) return {row, row, SlicePlan::kWhole, product_block(rows)};
  const auto column = static_cast<std::int8_t>(row + 1);
  return {column, SlicePlan::kWhole, column, product_block(columns)};
}

struct Product {
  static constexpr bool kProbesDtypes = true;

  // addmm(x, left, right, out=x), which adds to x as addmm_ does
  static bool is_in_place(const at::Tensor& out, const at::Tensor& addend, const at::Tensor& left,
                          const at::Tensor& right, const at::Scalar&, const at::Scalar&) {
    return out.is_same(addend) && out.dim() == left.dim() && out.dim() == right.dim() &&
           out.dim() >= 2 && out.size(0) == left.size(0) && out.size(-2) == left.size(-2) &&
           out.size(-1) == right.size(-1);
  }

  // mm, bmm
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& left, const at::Tensor& right) {
    if (left.size(-1) == 0) {
      outputs[0].zero_();
      return;
    }
    if (left.size(-1) == 1 && c10::isFloatingType(left.scalar_type()) &&
        left.scalar_type() == right.scalar_type()) {
      at::mul_out(const_cast<at::Tensor&>(outputs[0]), left, right);  // nothing is summed up
      return;
    }
    if (suits_small_products(outputs[0], left, right)) {
      launch_small_products(name, outputs[0], at::Tensor(), left, right, {});
      return;
    }
    if (launch_as_vector(name, outputs[0], left, right) ||
        launch_thin_product(name, outputs[0], left, right) ||
        launch_narrow_sums(name, outputs[0], at::Tensor(), left, right)) {
      return;
    }
    if (suits_blocked_product(outputs[0], left, right)) {
      launch_blocked_product(name, outputs[0], at::Tensor(), left, right, {});
      return;
    }
    const ProductCut cut = cut_product(outputs[0], left);
    const Along split{.dims = {cut.result, cut.left, cut.right}, .block = cut.block};
    launch_cpu<kCpu>(name, split, outputs, left, right);
  }

  // addmm, baddbmm, _addmm_activation
  template <auto kCpu, class... Activation>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                     const at::Scalar& beta, const at::Scalar& alpha, Activation... use_gelu) {
    check_addend(outputs[0], addend);
    if (left.size(-1) == 0 && sizeof...(Activation) == 0) {  // nothing is added, and alpha ignored
      scale_addend(outputs[0], addend, beta);
      return;
    }
    if constexpr (sizeof...(Activation) == 0) {
      if (!alpha.isComplex() && !alpha.equal(0) && !beta.isComplex() &&
          suits_addend(outputs[0], addend) && !is_read_apart(outputs[0], addend)) {
        const double by = alpha.toDouble(), addend_by = beta.toDouble();
        if (suits_small_products(outputs[0], left, right)) {
          launch_small_products(name, outputs[0], addend, left, right,
                                {.alpha = by, .beta = addend_by});
          return;
        }
        if (launch_narrow_sums(name, outputs[0], addend, left, right, by, addend_by)) return;
      }
    }
    if (suits_factors(outputs[0].scalar_type(), beta, alpha) && suits_addend(outputs[0], addend) &&
        suits_blocked_product(outputs[0], left, right)) {
      ProductOptions options{.beta = beta.toDouble(), .alpha = alpha.toDouble()};
      if constexpr (sizeof...(Activation) != 0) {
        options.activation = (use_gelu, ...) ? ProductActivation::kGelu : ProductActivation::kRelu;
      }
      launch_blocked_product(name, outputs[0], addend, left, right, options);
      return;
    }
    const ProductCut cut = cut_product(outputs[0], left);
    const std::int8_t added = cut.result == SlicePlan::kWhole
                                  ? SlicePlan::kWhole
                                  : addend_dim(outputs[0], addend, cut.result);
    const Along split{.dims = {cut.result, added, cut.left, cut.right}, .block = cut.block};
    launch_cpu<kCpu>(name, split, outputs, addend, left, right, beta, alpha, use_gelu...);
  }

 private:
  /// A column of float16, or a row of a half type that meets dense rows, is summed up as mv's
  /// vectors are.
  static bool launch_as_vector(const char* name, const at::Tensor& result, const at::Tensor& left,
                               const at::Tensor& right) {
    if (result.dim() != 2 || !c10::isReducedFloatingType(result.scalar_type())) return false;
    if (result.size(1) == 1 && result.scalar_type() == c10::kHalf) {
      const at::Tensor to = result.select(1, 0);
      const at::Tensor vector = right.select(1, 0);
      return launch_matrix_vector(name, to, vector, left, vector, 0, 1);
    }
    if (result.size(0) != 1 || right.stride(1) != 1) return false;
    const at::Tensor to = result.select(0, 0), vector = left.select(0, 0);
    return launch_matrix_vector(name, to, vector, right.t(), vector, 0, 1);
  }
  /// Of numbers times 0 nothing is left, NaN neither.
  static void scale_addend(const at::Tensor& result, const at::Tensor& addend,
                           const at::Scalar& beta) {
    if (beta.equal(0)) {
      result.zero_();
      return;
    }
    at::Tensor to = result;
    if (beta.equal(1)) {
      to.copy_(addend);
    } else {
      at::mul_out(to, addend.expand(to.sizes()), at::native::wrapped_scalar_tensor(beta));
    }
  }
  /// Whether the addend has elements of the result at other places than its own.
  static bool is_read_apart(const at::Tensor& result, const at::Tensor& addend) {
    return addend.is_alias_of(result) &&
           (addend.storage_offset() != result.storage_offset() ||
            addend.sizes() != result.sizes() || addend.strides() != result.strides());
  }
  /// Sums of half types are float32 in memory of their own, where they can be multiplied. ATen does
  /// not look at the factors where alpha is 0.
  static bool suits_factors(c10::ScalarType dtype, const at::Scalar& beta,
                            const at::Scalar& alpha) {
    if (alpha.isComplex() || beta.isComplex()) return false;
    return alpha.equal(1) || (c10::isReducedFloatingType(dtype) && alpha.toDouble() != 0);
  }
  static bool suits_addend(const at::Tensor& result, const at::Tensor& addend) {
    return addend.scalar_type() == result.scalar_type() && !addend.is_conj() && !addend.is_neg();
  }
};

struct MatrixVector {
  static constexpr bool kProbesDtypes = true;

  // mv(matrix, vector, out=x), which ATen asks of addmv(x, matrix, vector, out=x)
  static bool is_in_place(const at::Tensor& out, const at::Tensor& addend, const at::Tensor& matrix,
                          const at::Tensor&, const at::Scalar&, const at::Scalar&) {
    return out.is_same(addend) && out.dim() == 1 && matrix.dim() == 2 &&
           out.size(0) == matrix.size(0);
  }

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& addend, const at::Tensor& matrix, const at::Tensor& vector,
                     const at::Scalar& beta, const at::Scalar& alpha) {
    check_addend(outputs[0], addend);
    // mv() adds to new memory, times 0. It must not read it, since values may have failed there.
    const bool reads_none = beta.equal(0) && addend.is_same(outputs[0]) && vector.size(0) > 0;
    if (launch_matrix_vector(name, outputs[0], reads_none ? vector : addend, matrix, vector, beta,
                             alpha)) {
      return;
    }
    const at::Tensor added = reads_none ? vector.select(0, 0) : addend;
    // Rows are read once, from memory: a block is cheap but for that.
    const double cost = 0.5 * static_cast<double>(matrix.size(1));
    const Along split{.dims = {0, addend_dim(outputs[0], added, 0), 0, SlicePlan::kWhole},
                      .cost = cost};
    launch_cpu<kCpu>(name, split, outputs, added, matrix, vector, beta, alpha);
  }
};

}  // namespace loom::ops
