// SPDX-License-Identifier: BSD-3-Clause
// torch.func.vmap. A batched operand is a tensor with one dimension more, which the function does
// not see; each rule finds one call of the operator that does the whole batch.
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include "operators.h"
#include <algorithm>
#include <optional>
#include <utility>

namespace custom_ops {
namespace {

namespace functorch = at::functorch;

/// An operand: the tensor with its hidden dimension, if it has one, in front.
struct Operand {
  at::Tensor tensor;
  bool batched;

  Operand(const at::Tensor& given, std::int64_t level) {
    auto [unwrapped, dim] = functorch::unwrapTensorAtLevel(given, level);
    batched = dim.has_value();
    tensor = batched ? unwrapped.movedim(*dim, 0) : std::move(unwrapped);
  }
  /// Dimensions that the function sees.
  [[nodiscard]] std::int64_t rank() const { return tensor.dim() - (batched ? 1 : 0); }
  [[nodiscard]] c10::SymInt batch() const { return tensor.sym_size(0); }
};

/// A result and where its hidden dimension is.
struct Batched {
  at::Tensor tensor;
  std::int64_t dim = 0;
};

template <class Rule>
at::Tensor batched(const c10::TypedOperatorHandle<Binary>& op, const at::Tensor& self,
                   const at::Tensor& other, Rule rule) {
  const c10::impl::ExcludeDispatchKeyGuard below_vmap(c10::DispatchKey::FuncTorchBatched);
  const auto layer = functorch::maybeCurrentDynamicLayer();
  TORCH_CHECK(layer.has_value(), op.schema().name(),
              ": a tensor of a vmap was used after that vmap had ended");
  const std::int64_t level = layer->layerId();
  const Operand left(self, level);
  const Operand right(other, level);
  if (!left.batched && !right.batched) return op.call(left.tensor, right.tensor);
  Batched result = rule(left, right);
  return functorch::makeBatched(std::move(result.tensor), result.dim, level);
}

/// Aligns an operand with one of more dimensions, as broadcasting aligns the visible ones.
at::Tensor padded(const Operand& operand, std::int64_t rank) {
  at::Tensor tensor = operand.tensor;
  if (!operand.batched) return tensor;
  for (std::int64_t i = operand.rank(); i < rank; ++i) tensor = tensor.unsqueeze(1);
  return tensor;
}

/// A scalar that is batched has a dimension, and would count as a tensor in type promotion.
at::Tensor promoted_scalar(const Operand& scalar, const Operand& tensor) {
  const at::Tensor as_seen = at::empty({}, scalar.tensor.options().device(c10::kMeta));
  return scalar.tensor.to(at::result_type(as_seen, tensor.tensor));
}

Batched myadd_rule(Operand left, Operand right) {
  const std::int64_t rank = std::max(left.rank(), right.rank());
  const bool left_is_scalar = left.batched && left.rank() == 0;
  const bool right_is_scalar = right.batched && right.rank() == 0;
  if (left_is_scalar && !right_is_scalar) left.tensor = promoted_scalar(left, right);
  if (right_is_scalar && !left_is_scalar) right.tensor = promoted_scalar(right, left);
  return {myadd(padded(left, rank), padded(right, rank))};
}

/// (B, b, n, k) of an operand that is batched, or the same matrices B times, as (B * b, n, k).
at::Tensor merged(const Operand& operand, const c10::SymInt& batch) {
  at::Tensor tensor = operand.tensor;
  if (!operand.batched) {
    c10::SymDimVector sizes{batch};
    sizes.append(tensor.sym_sizes().begin(), tensor.sym_sizes().end());
    tensor = tensor.unsqueeze(0).expand_symint(sizes);
  }
  return tensor.flatten(0, 1);
}

Batched mymatmul_rule(const Operand& left, const Operand& right) {
  const c10::SymInt batch = left.batched ? left.batch() : right.batch();
  if (left.rank() == 2 && right.rank() == 2) {
    if (left.batched && right.batched) return {mymatmul(left.tensor, right.tensor)};
    if (left.batched) {  // all rows of all matrices are rows of one
      const at::Tensor rows = mymatmul(left.tensor.flatten(0, 1), right.tensor);
      return {rows.unflatten_symint(0, {batch, left.tensor.sym_size(1)})};
    }
    // All columns of all matrices are columns of one.
    const at::Tensor columns = right.tensor.movedim(0, -1).flatten(1, 2);
    const c10::SymInt width = right.tensor.sym_size(2);
    return {mymatmul(left.tensor, columns).unflatten_symint(1, {width, batch}), 2};
  }
  if (left.rank() != 3 || right.rank() != 3) {  // says what is wrong with what the function sees
    const auto seen = [](const Operand& operand) {
      return operand.batched ? operand.tensor.select(0, 0) : operand.tensor;
    };
    return {mymatmul(seen(left), seen(right))};
  }
  const at::Tensor product = mymatmul(merged(left, batch), merged(right, batch));
  return {product.unflatten_symint(0, {batch, left.tensor.sym_size(left.batched ? 1 : 0)})};
}

at::Tensor myadd_batched(const at::Tensor& self, const at::Tensor& other) {
  return batched(myadd_operator(), self, other, myadd_rule);
}

at::Tensor mymatmul_batched(const at::Tensor& self, const at::Tensor& other) {
  return batched(mymatmul_operator(), self, other, mymatmul_rule);
}

}  // namespace

TORCH_LIBRARY_IMPL(custom_ops, FuncTorchBatched, m) {
  m.impl("myadd", TORCH_FN(myadd_batched));
  m.impl("mymatmul", TORCH_FN(mymatmul_batched));
}

}  // namespace custom_ops
