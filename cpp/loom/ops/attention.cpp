// SPDX-License-Identifier: BSD-3-Clause
// Scaled dot product attention with ATen's flash kernels for the CPU, cut along the batch or the
// heads. What they do not do (dropout, grouped queries, ...) takes ATen's composition.
#include "loom/ops/empty.h"
#include "loom/ops/launch.h"

#include <ATen/OpMathType.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace loom::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr std::int8_t kWhole = SlicePlan::kWhole;
// One multiply-add, in the unit of Pointwise's cost.
constexpr double kFlopPairCost = 0.15;

std::int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const OptionalTensor& mask, double dropout, bool causal,
                    std::optional<double> scale, bool grouped) {
  const auto math = static_cast<std::int64_t>(at::SDPBackend::math);
  const bool same_heads = query.dim() == 4 && key.dim() == 4 && query.size(1) == key.size(1);
  if (grouped || !same_heads || !query.device().is_privateuseone()) return math;
  // The fused operator has no batching rule.
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (tensor->key_set().has(c10::DispatchKey::FuncTorchBatched)) return math;
  }
  const std::int64_t on_cpu =
      at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, grouped);
  return on_cpu == static_cast<std::int64_t>(at::SDPBackend::flash_attention)
             ? static_cast<std::int64_t>(at::SDPBackend::overrideable)
             : math;
}

/// Cuts along the longer of batch and heads. Operands before `masked` have the batch first and the
/// heads at the dimension that `heads` says; then the mask, which broadcasts.
template <std::size_t kOperands>
Along cut(const at::Tensor& query, const at::Tensor& key, const OptionalTensor& mask,
          const std::array<std::int8_t, kOperands>& heads) {
  const bool by_batch = query.size(0) >= query.size(1);
  const std::int64_t items = query.size(by_batch ? 0 : 1);
  Along along;
  for (std::size_t i = 0; i < kOperands; ++i) along.dims[i] = by_batch ? std::int8_t{0} : heads[i];
  const std::int8_t dim = by_batch ? 0 : 1;
  along.dims[kOperands] =
      mask && mask->defined() && mask->dim() == 4 && mask->size(dim) == items ? dim : kWhole;
  along.cost = 2 * kFlopPairCost * static_cast<double>(query.numel()) *
               static_cast<double>(key.size(2)) /
               static_cast<double>(std::max<std::int64_t>(items, 1));
  return along;
}

OptionalTensor optional(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

void forward_kernel(const at::Tensor& output, const at::Tensor& log_sum, const at::Tensor& query,
                    const at::Tensor& key, const at::Tensor& value, const at::Tensor& mask,
                    double dropout, bool causal, std::optional<double> scale) {
  at::native::flash_attention_kernel(c10::kCPU, output, log_sum, query, key, value, dropout, causal,
                                     optional(mask), scale);
}

using Attention = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                             c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

Attention attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const OptionalTensor& mask, double dropout, bool causal, bool,
                    std::optional<double> scale) {
  const std::array<std::int64_t, 4> sizes{query.size(0), query.size(2), query.size(1),
                                          value.size(3)};
  // The kernels work on [batch, position, head, element]; the result is laid out as the queries.
  const at::Tensor output = value.size(3) == query.size(3)
                                ? empty_like(query).transpose(1, 2)
                                : empty(sizes, query.scalar_type(), query.device());
  at::Tensor log_sum = empty(c10::IntArrayRef(sizes).slice(0, 3),
                             at::toOpMathType(query.scalar_type()), query.device());
  const auto split = cut<5>(query, key, mask, {2, 2, 1, 1, 1});
  launch("_scaled_dot_product_fused_attention_overrideable", split, forward_kernel, out(output),
         out(log_sum), query, key, value, mask, dropout, causal, scale);
  const auto nothing = [] { return at::empty({}, c10::TensorOptions(c10::kLong)); };
  return {output.transpose(1, 2),
          log_sum.transpose(1, 2),
          at::Tensor(),
          at::Tensor(),
          query.size(2),
          key.size(2),
          nothing(),
          nothing(),
          at::Tensor()};
}

void backward_kernel(const at::Tensor& to_query, const at::Tensor& to_key,
                     const at::Tensor& to_value, const at::Tensor& grad, const at::Tensor& query,
                     const at::Tensor& key, const at::Tensor& value, const at::Tensor& output,
                     const at::Tensor& log_sum, const at::Tensor& mask, double dropout, bool causal,
                     std::optional<double> scale) {
  for (const at::Tensor& to : {to_query, to_key, to_value}) to.zero_();
  at::native::flash_attention_backward_kernel(c10::kCPU, to_query, to_key, to_value, grad, query,
                                              key, value, output, log_sum, dropout, causal,
                                              optional(mask), scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& mask, std::array<bool, 4>, const at::Tensor& output,
    const at::Tensor& log_sum, const at::Tensor&, const at::Tensor&, std::int64_t, std::int64_t,
    double dropout, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  const auto like = [](const at::Tensor& tensor) {
    return empty({tensor.size(0), tensor.size(2), tensor.size(1), tensor.size(3)},
                 tensor.scalar_type(), tensor.device());
  };
  const auto swap = [](const at::Tensor& tensor) { return tensor.transpose(1, 2); };
  at::Tensor to_query = like(query);
  at::Tensor to_key = like(key);
  at::Tensor to_value = like(value);
  Along split = cut<9>(query, key, mask, {2, 2, 2, 2, 2, 2, 2, 2, 2});
  split.cost *= 2.5;
  launch("_scaled_dot_product_fused_attention_overrideable_backward", split, backward_kernel,
         out(to_query), out(to_key), out(to_value), swap(grad), swap(query), swap(key), swap(value),
         swap(output), swap(log_sum), mask, dropout, causal, scale);
  return {swap(to_query), swap(to_key), swap(to_value), at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
}

}  // namespace loom::ops

// scaled_dot_product_attention asks the stub, not the operator.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &loom::ops::choose)
}  // namespace at::native
