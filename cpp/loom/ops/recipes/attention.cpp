// SPDX-License-Identifier: BSD-3-Clause
// Scaled dot product attention by our own kernels, or by ATen's flash kernels for the CPU cut along
// the batch or the heads. What neither does (dropout, ...) takes ATen's composition.
#include "loom/backend/cuda_name.h"
#include "loom/backend/registration.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/flash_attention/few_queries.h"
#include "loom/ops/recipes/flash_attention/flash_attention.h"
#include "loom/ops/recipes/product/in_floats.h"

#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
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

/// What the kernels ask of their operands when the flash backend is switched off: ATen's own checks
/// begin with that switch.
template <bool kGrouped>
bool fits(const sdp::sdp_params& params) {
  constexpr auto kChecks =
      std::array{sdp::check_nested_tensor,
                 sdp::check_for_dropout,
                 sdp::check_tensor_shapes,
                 sdp::check_batch_size_and_num_heads_dense<kGrouped>,
                 sdp::check_attn_mask_shape,
                 sdp::check_nonzero_sequence_lengths_dense,
                 sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/false>};
  constexpr auto kDtypes = std::array{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  const auto holds = [&](const auto check) { return check(params, /*debug=*/false); };
  return std::all_of(kChecks.begin(), kChecks.end(), holds) &&
         sdp::check_tensor_dtype(params, kDtypes, /*debug=*/false) &&
         TORCH_GUARD_OR_FALSE(params.query.sym_size(-1).sym_eq(params.key.sym_size(-1))) &&
         TORCH_GUARD_OR_FALSE(params.query.sym_size(-1).sym_eq(params.value.sym_size(-1)));
}

/// Heads of keys and values that several heads of queries share. They have no gradient of their
/// own.
bool fits_grouped(const sdp::sdp_params& params) {
  return params.enable_gqa && !sdp::input_requires_grad(params) && fits<true>(params) &&
         TORCH_GUARD_OR_FALSE(params.key.sym_size(1).sym_eq(params.value.sym_size(1)));
}

std::int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const OptionalTensor& mask, double dropout, bool causal,
                    std::optional<double> scale, bool grouped) {
  constexpr auto kFused = static_cast<std::int64_t>(at::SDPBackend::overrideable);
  constexpr auto kFlash = static_cast<std::int64_t>(at::SDPBackend::flash_attention);
  const auto& context = at::globalContext();
  const auto math = static_cast<std::int64_t>(at::SDPBackend::math);
  if (query.dim() != 4 || key.dim() != 4 || !query.device().is_privateuseone()) return math;
  // The fused operator has no batching rule.
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (tensor->key_set().has(c10::DispatchKey::FuncTorchBatched)) return math;
  }
  if (mask && mask->key_set().has(c10::DispatchKey::FuncTorchBatched)) return math;
  // Sizes may be symbolic: to ask for them would fix them for whoever traces.
  const bool same_heads = TORCH_GUARD_OR_FALSE(query.sym_size(1).sym_eq(key.sym_size(1)));
  // The one kernel answers to the name that it has on cpu, to that of a backend like this, and to
  // the names of CUDA's where programs call loom so.
  const bool by_another_name = context.userEnabledOverrideableSDP() ||
                               (cuda_name::is_on() && (context.userEnabledMemEfficientSDP() ||
                                                       context.userEnabledCuDNNSDP()));
  if (!same_heads) {
    const bool enabled = context.userEnabledFlashSDP() || by_another_name;
    return enabled && fits_grouped({query, key, value, mask, dropout, causal, grouped}) ? kFused
                                                                                        : math;
  }
  grouped = false;  // each head is a group
  if (!context.userEnabledFlashSDP() && by_another_name &&
      fits<false>({query, key, value, mask, dropout, causal, grouped})) {
    return kFused;
  }
  const std::int64_t on_cpu =
      at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, grouped);
  return on_cpu == kFlash ? kFused : math;
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

double factor(const at::Tensor& query, std::optional<double> scale) {
  return sdp::calculate_scale(query, scale).expect_float();
}

using Attention = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                             c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

Attention attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const OptionalTensor& mask, double dropout, bool causal, bool,
                    std::optional<double> scale) {
  TORCH_CHECK(
      query.size(3) == key.size(3) && query.size(3) == value.size(3),
      "scaled_dot_product_attention: expected queries, keys and values with as many elements"
      " each, got ",
      query.size(3), ", ", key.size(3), " and ", value.size(3));
  TORCH_CHECK(key.size(2) == value.size(2),
              "scaled_dot_product_attention: expected as many values as keys, got ", value.size(2),
              " and ", key.size(2));
  // Results are laid out as PyTorch's meta function says; ATen's kernels work on [batch, position,
  // head, element].
  const at::Tensor output = ops::empty_like(query);
  const at::Tensor log_sum = empty({query.size(0), query.size(1), query.size(2)},
                                   at::toOpMathType(query.scalar_type()), query.device());
  constexpr auto kName = "_scaled_dot_product_fused_attention_overrideable";
  if (suits_few_queries(query, key, value, mask.value_or(at::Tensor()))) {
    launch(kName, Custom{}, attend_few_queries, out(output), out(log_sum), query, key, value, mask,
           causal, factor(query, scale));
  } else if (computes_in_floats(query)) {
    const Attention made =
        attention(in_floats(query), in_floats(key), in_floats(value),
                  optional(in_floats(mask.value_or(at::Tensor()))), dropout, causal, false, scale);
    output.copy_(std::get<0>(made));
    log_sum.copy_(std::get<1>(made));
  } else if (key.size(1) != query.size(1)) {
    const std::int64_t group = query.size(1) / key.size(1);
    return attention(query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1),
                     mask, dropout, causal, false, scale);
  } else if (suits_flash_attention(query, key, value, mask.value_or(at::Tensor())) &&
             suits_flash_attention(output)) {
    launch(kName, Custom{}, flash_attention, out(output), out(log_sum), query, key, value, mask,
           causal, factor(query, scale));
  } else {
    const auto split = cut<5>(query, key, mask, {2, 2, 1, 1, 1});
    launch(kName, split, forward_kernel, out(output.transpose(1, 2)), out(log_sum.transpose(1, 2)),
           query, key, value, mask, dropout, causal, scale);
  }
  const auto nothing = [] { return at::empty({}, c10::TensorOptions(c10::kLong)); };
  return {output,      log_sum,   at::Tensor(), at::Tensor(), query.size(2),
          key.size(2), nothing(), nothing(),    at::Tensor()};
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

bool suits_flash_attention_backward(std::initializer_list<at::Tensor> others,
                                    const at::Tensor& query, const at::Tensor& key,
                                    const at::Tensor& value, const at::Tensor& log_sum,
                                    const at::Tensor& mask) {
  return suits_flash_attention(query, key, value, mask) && log_sum.is_contiguous() &&
         std::all_of(others.begin(), others.end(), [&](const at::Tensor& tensor) {
           return tensor.scalar_type() == query.scalar_type() && suits_flash_attention(tensor);
         });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& mask, std::array<bool, 4>, const at::Tensor& output,
    const at::Tensor& log_sum, const at::Tensor&, const at::Tensor&, std::int64_t, std::int64_t,
    double dropout, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  if (!grad.defined()) return {};
  const auto swap = [](const at::Tensor& tensor) { return tensor.transpose(1, 2); };
  const at::Tensor to_query = ops::empty_like(query);
  const at::Tensor to_key = ops::empty_like(key);
  const at::Tensor to_value = ops::empty_like(value);
  constexpr auto kName = "_scaled_dot_product_fused_attention_overrideable_backward";
  // A gradient that was expanded, as sum() makes them.
  const bool expanded =
      suits_flash_attention(query, key, value, mask) && !suits_flash_attention(grad);
  const at::Tensor dense_grad = expanded ? grad.contiguous() : grad;
  if (suits_flash_attention_backward({to_query, to_key, to_value, dense_grad, output}, query, key,
                                     value, log_sum, mask)) {
    launch(kName, Custom{}, flash_attention_backward, out(to_query), out(to_key), out(to_value),
           dense_grad, query, key, value, output, log_sum, mask, causal, factor(query, scale));
    return {to_query, to_key, to_value, at::Tensor()};
  }
  if (computes_in_floats(query)) {
    const auto [query_floats, key_floats, value_floats, none] = attention_backward(
        in_floats(grad), in_floats(query), in_floats(key), in_floats(value), in_floats(mask), {},
        in_floats(output), log_sum, {}, {}, 0, 0, dropout, causal, {}, {}, scale);
    to_query.copy_(query_floats);
    to_key.copy_(key_floats);
    to_value.copy_(value_floats);
    return {to_query, to_key, to_value, at::Tensor()};
  }
  Along split = cut<9>(query, key, mask, {2, 2, 2, 2, 2, 2, 2, 2, 2});
  split.cost *= 2.5;
  launch(kName, split, backward_kernel, out(swap(to_query)), out(swap(to_key)), out(swap(to_value)),
         swap(grad), swap(query), swap(key), swap(value), swap(output), swap(log_sum), mask,
         dropout, causal, scale);
  return {to_query, to_key, to_value, at::Tensor()};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
}

}  // namespace loom::ops

// scaled_dot_product_attention asks the stub, not the operator.
namespace at::native {
[[maybe_unused]] static const bool loom_attention = loom::register_at_load(
    [] { REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &loom::ops::choose) });
}  // namespace at::native
