// SPDX-License-Identifier: BSD-3-Clause
// The parts of a batch norm whose statistics several processes share (nn.SyncBatchNorm), which cpu
// does not have: what CUDA's kernels compute, of operators that are recorded and fused. Statistics
// are float for half and bfloat16.
#include "loom/backend/registration.h"
#include "loom/ops/launch/empty.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

bool is_given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

/// All dimensions but the channels.
at::DimVector others(const at::Tensor& input) {
  at::DimVector dims;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

c10::ScalarType statistics_of(const at::Tensor& input) {
  return at::toOpMathType(input.scalar_type());
}

at::Tensor widened(const at::Tensor& input) { return input.to(statistics_of(input)); }

/// A number for each channel, as broadcast over `input`.
at::Tensor per_channel(const at::Tensor& numbers, const at::Tensor& input) {
  at::DimVector sizes(input.dim(), 1);
  sizes[1] = input.size(1);
  return numbers.to(statistics_of(input)).view(sizes);
}

void check_input(const char* name, const at::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, name, ": expected at least 2 dimensions, got ", input.dim());
}

void update_running(const OptionalTensor& running, const at::Tensor& value, double momentum) {
  if (!is_given(running)) return;
  running->copy_(running->to(value.scalar_type()) * (1 - momentum) + value * momentum);
}

// (mean, invstd)
Two statistics(const at::Tensor& input, double eps) {
  check_input("batch_norm_stats", input);
  // The normalised tensor is recorded and dropped before anybody computes it.
  const auto [output, mean, invstd] =
      at::native_batch_norm(widened(input), {}, {}, {}, {}, /*training=*/true, 0, eps);
  return {mean, invstd};
}

/// Rows of `mean` and `invstd` are those of a process, over as many elements as `counts` says.
Two gather_with_counts(const at::Tensor& /*input*/, const at::Tensor& mean,
                       const at::Tensor& invstd, const OptionalTensor& running_mean,
                       const OptionalTensor& running_var, double momentum, double eps,
                       const at::Tensor& counts) {
  const auto dtype = statistics_of(mean);
  const at::Tensor weights = counts.to(dtype).view({-1, 1}), means = mean.to(dtype);
  const at::Tensor total = weights.sum();
  const at::Tensor center = (means * weights).sum(0) / total;
  const at::Tensor variances = invstd.to(dtype).pow(-2) - eps;
  const at::Tensor squares = ((variances + (means - center).square()) * weights).sum(0);
  update_running(running_mean, center, momentum);
  update_running(running_var, squares / (total - 1), momentum);
  return {center, at::rsqrt(squares / total + eps)};
}

Two gather(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
           const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
           double eps, std::int64_t count) {
  return gather_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps,
                            at::full({mean.size(0)}, count, mean.options()));
}

at::Tensor normalized(const at::Tensor& input, const OptionalTensor& weight,
                      const OptionalTensor& bias, const at::Tensor& mean, const at::Tensor& invstd,
                      double /*eps*/) {
  check_input("batch_norm_elemt", input);
  at::Tensor scale = per_channel(invstd, input);
  if (is_given(weight)) scale = scale * per_channel(*weight, input);
  at::Tensor output = (widened(input) - per_channel(mean, input)) * scale;
  if (is_given(bias)) output = output + per_channel(*bias, input);
  return output.to(input.scalar_type());
}

at::Tensor& normalized_out(const at::Tensor& input, const OptionalTensor& weight,
                           const OptionalTensor& bias, const at::Tensor& mean,
                           const at::Tensor& invstd, double eps, at::Tensor& output) {
  return output.copy_(normalized(input, weight, bias, mean, invstd, eps));
}

// (sum_dy, sum_dy_xmu, grad_weight, grad_bias), undefined where nobody asks
Four backward_reduce(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                     const at::Tensor& invstd, const OptionalTensor& weight, bool input_g,
                     bool weight_g, bool bias_g) {
  check_input("batch_norm_backward_reduce", input);
  const at::DimVector dims = others(input);
  const at::Tensor wide = widened(grad);
  const at::Tensor sum = wide.sum(dims);
  const at::Tensor product = (wide * (widened(input) - per_channel(mean, input))).sum(dims);
  const auto dtype = is_given(weight) ? weight->scalar_type() : statistics_of(input);
  at::Tensor sum_dy, sum_dy_xmu, grad_weight, grad_bias;
  if (input_g) std::tie(sum_dy, sum_dy_xmu) = Two{sum, product};
  if (weight_g) grad_weight = (product * invstd).to(dtype);
  if (bias_g) grad_bias = input_g ? sum.to(dtype, false, /*copy=*/true) : sum.to(dtype);
  return {sum_dy, sum_dy_xmu, grad_weight, grad_bias};
}

at::Tensor backward_elements(const at::Tensor& grad, const at::Tensor& input,
                             const at::Tensor& mean, const at::Tensor& invstd,
                             const OptionalTensor& weight, const at::Tensor& sum_dy,
                             const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  check_input("batch_norm_backward_elemt", input);
  const auto dtype = statistics_of(input);
  const at::Tensor total = count.sum().to(dtype), rate = invstd.to(dtype);
  const at::Tensor slope = sum_dy_xmu.to(dtype) / total * rate * rate;
  at::Tensor scale = per_channel(rate, input);
  if (is_given(weight)) scale = scale * per_channel(*weight, input);
  const at::Tensor centered = widened(input) - per_channel(mean, input);
  const at::Tensor result = (widened(grad) - per_channel(sum_dy.to(dtype) / total, input) -
                             centered * per_channel(slope, input)) *
                            scale;
  return result.to(input.scalar_type());
}

// (mean, var)
Two update_statistics(const at::Tensor& input, const OptionalTensor& running_mean,
                      const OptionalTensor& running_var, double momentum) {
  check_input("batch_norm_update_stats", input);
  const auto count = static_cast<double>(input.numel() / input.size(1));
  const auto [var, mean] = at::var_mean(input, others(input), c10::Scalar(0));
  update_running(running_mean, mean, momentum);
  update_running(running_var, var * (count / (count - 1)), momentum);
  return {mean, var};
}

// What torch.compile and the newer batch norm call: the reserve is cuDNN's.
Four with_update(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                 at::Tensor& running_mean, at::Tensor& running_var, double momentum, double eps) {
  auto [output, mean, invstd] =
      at::native_batch_norm(input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {output, mean, invstd, empty({0}, c10::kByte, input.device())};
}

Three backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
               const OptionalTensor& running_mean, const OptionalTensor& running_var,
               const OptionalTensor& mean, const OptionalTensor& invstd, bool update, double eps,
               std::array<bool, 3> mask, const at::Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(grad, input, weight, running_mean, running_var, mean,
                                        invstd, update, eps, mask);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", TORCH_FN(statistics));
  m.impl("batch_norm_gather_stats", TORCH_FN(gather));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_with_counts));
  m.impl("batch_norm_elemt", TORCH_FN(normalized));
  m.impl("batch_norm_elemt.out", TORCH_FN(normalized_out));
  m.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(backward_elements));
  m.impl("batch_norm_update_stats", TORCH_FN(update_statistics));
  m.impl("_batch_norm_with_update", TORCH_FN(with_update));
  m.impl("batch_norm_backward", TORCH_FN(backward));
}

}  // namespace loom::ops
