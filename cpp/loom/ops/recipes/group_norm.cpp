// SPDX-License-Identifier: BSD-3-Clause
// Group normalisation, cut along the batch; gradients of the parameters are summed over parts of
// it in their order.
#include "loom/base/ceil_div.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/native/cpu/mixed_data_type.h>
#include <ATen/native/group_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

namespace loom::ops {
namespace {

namespace native = at::native;
using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr double kElementCost = 3;
// Each part of a parameter's gradient is as large as the parameter.
constexpr std::int64_t kMaxGradientParts = 16;

/// Samples, channels, elements of a channel, groups.
struct Shape {
  std::int64_t samples, channels, elements, groups;

  [[nodiscard]] double sample_cost() const noexcept {
    return kElementCost * static_cast<double>(channels) * static_cast<double>(elements);
  }
};

at::Tensor defined_or_none(const OptionalTensor& tensor) { return tensor ? *tensor : at::Tensor(); }

void check(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, Shape shape) {
  TORCH_CHECK(shape.channels % shape.groups == 0,
              "Expected number of channels in input to be divisible by num_groups, but got input "
              "of shape ",
              input.sizes(), " and num_groups=", shape.groups);
  if (native::is_mixed_type(input, weight, bias)) {
    native::check_mixed_data_type(input, weight, bias);
  }
}

/// As the kernels ask for: dense, channels last or not.
at::Tensor dense(const at::Tensor& tensor) {
  return tensor.contiguous(tensor.suggest_memory_format());
}

at::Tensor empty_dense(const at::Tensor& like) {
  return like.is_contiguous() ? empty(like.sizes(), like.scalar_type(), like.device())
                              : empty_like(like);
}

Three group_norm(const at::Tensor& input, const OptionalTensor& weight_opt,
                 const OptionalTensor& bias_opt, std::int64_t samples, std::int64_t channels,
                 std::int64_t elements, std::int64_t groups, double eps) {
  const c10::ScalarType dtype = input.scalar_type();
  if (dtype != c10::kFloat && dtype != c10::kDouble && !c10::isReducedFloatingType(dtype))
      [[unlikely]] {
    return call_fallback<Three, const at::Tensor&, const OptionalTensor&, const OptionalTensor&,
                         std::int64_t, std::int64_t, std::int64_t, std::int64_t, double>(
        "aten::native_group_norm", "", input, weight_opt, bias_opt, samples, channels, elements,
        groups, eps);
  }
  const Shape shape{samples, channels, elements, groups};
  const at::Tensor weight = defined_or_none(weight_opt);
  const at::Tensor bias = defined_or_none(bias_opt);
  check(input, weight, bias, shape);
  const at::Tensor from = dense(input);
  const auto statistics =
      native::param_scalar_type(input, native::is_mixed_type(input, weight, bias));
  at::Tensor output = empty_dense(from);
  at::Tensor mean = empty({samples, groups}, statistics, input.device());
  at::Tensor rstd = empty({samples, groups}, statistics, input.device());
  const auto kernel = [](at::Tensor to, at::Tensor to_mean, at::Tensor to_rstd,
                         const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift,
                         Shape s, double epsilon) {
    native::GroupNormKernel(c10::kCPU, in, scale, shift, in.size(0), s.channels, s.elements,
                            s.groups, epsilon, to, to_mean, to_rstd);
  };
  constexpr std::int8_t kWhole = SlicePlan::kWhole;
  launch("native_group_norm",
         Along{.dims = {0, 0, 0, 0, kWhole, kWhole}, .cost = shape.sample_cost()}, kernel,
         out(output), out(mean), out(rstd), from, weight, bias, shape, eps);
  return {output, mean, rstd};
}

struct Parts {
  Shape shape;
  std::int64_t block;

  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(shape.samples, block); }
  [[nodiscard]] at::Tensor samples(const TensorRef& whole, std::int64_t index) const {
    if (!whole.defined()) return {};
    const std::int64_t begin = index * block;
    return whole.alias_slice(0, begin, std::min(block, shape.samples - begin));
  }
  [[nodiscard]] at::Tensor room(const TensorRef& gradient) const {
    if (!gradient.defined()) return {};
    return at::empty({count(), shape.channels},
                     c10::TensorOptions(c10::kCPU).dtype(gradient.dtype()));
  }
};

void add_up(const at::Tensor& parts, const TensorRef& gradient) {
  if (!parts.defined()) return;
  at::Tensor to = gradient.alias();
  at::cpu::sum_outf(parts, c10::IntArrayRef{0}, false, std::nullopt, to);
}

// Runs on the worker.
void gradients(Grid& grid, const TensorRef& to_input, const TensorRef& to_weight,
               const TensorRef& to_bias, const TensorRef& grad, const TensorRef& input,
               const TensorRef& mean, const TensorRef& rstd, const TensorRef& weight, Parts parts) {
  const at::Tensor weights = parts.room(to_weight);
  const at::Tensor biases = parts.room(to_bias);
  grid.run(parts.count(), [&](std::int64_t index) {
    const at::Tensor from = parts.samples(grad, index);
    at::Tensor input_to = parts.samples(to_input, index);
    at::Tensor weight_to = weights.defined() ? weights.select(0, index) : at::Tensor();
    at::Tensor bias_to = biases.defined() ? biases.select(0, index) : at::Tensor();
    const Shape& s = parts.shape;
    native::GroupNormBackwardKernel(c10::kCPU, from, parts.samples(input, index),
                                    parts.samples(mean, index), parts.samples(rstd, index),
                                    weight.alias(), from.size(0), s.channels, s.elements, s.groups,
                                    input_to, weight_to, bias_to);
  });
  add_up(weights, to_weight);
  add_up(biases, to_bias);
}

Three group_norm_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& rstd, const OptionalTensor& weight_opt,
                          std::int64_t samples, std::int64_t channels, std::int64_t elements,
                          std::int64_t groups, std::array<bool, 3> mask) {
  const at::Tensor weight = defined_or_none(weight_opt);
  const Shape shape{samples, channels, elements, groups};
  const at::Tensor from = dense(input);
  const auto parameter = native::param_scalar_type(from, native::is_mixed_type(from, weight));
  at::Tensor to_input, to_weight, to_bias;
  if (mask[0]) to_input = empty_dense(from);
  if (mask[1]) to_weight = empty({channels}, parameter, input.device());
  if (mask[2]) to_bias = empty({channels}, parameter, input.device());
  if (input.numel() == 0) {
    if (mask[1]) to_weight.zero_();
    if (mask[2]) to_bias.zero_();
    return {to_input, to_weight, to_bias};
  }
  const std::int64_t fewest = ceil_div(samples, kMaxGradientParts);
  const Parts parts{shape, std::max(block_length(samples, 2 * shape.sample_cost()), fewest)};
  launch_on(input.device(), "native_group_norm_backward", Custom{}, gradients, out(to_input),
            out(to_weight), out(to_bias), grad.contiguous(from.suggest_memory_format()), from, mean,
            rstd, weight, parts);
  return {to_input, to_weight, to_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_group_norm", TORCH_FN(group_norm));
  m.impl("native_group_norm_backward", TORCH_FN(group_norm_backward));
}

}  // namespace loom::ops
