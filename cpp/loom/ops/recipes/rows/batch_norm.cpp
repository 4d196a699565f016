// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/batch_norm.h"

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/norm/batch_norm.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/fused.h"
#include "loom/ops/launch/launch_open.h"
#include "loom/ops/recipes/rows/channel_sums.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <array>
#include <optional>

namespace loom::ops {
namespace {

using fusion::Node;
using fusion::Op;

// Short runs of a channel's elements would each be a row of a program: factors are then repeated
// for each element of a run, and a row is a sample, of which there have to be some.
constexpr std::int64_t kFewestSamples = 4;
// Few channels that are the last dimension would be short rows, too: factors are repeated for each
// column of an image, as long as they stay in L1.
constexpr std::int64_t kShortRow = 128, kLongestTiledRow = 4096;

bool takes(const at::Tensor& parameter, const at::Tensor& input) {
  return !parameter.defined() || (goes_with_rows(parameter, input) && parameter.is_contiguous());
}

/// Nothing for tensors that are dense in another order, or for which `wants_statistics` of few
/// samples with short runs.
std::optional<ChannelLayout> channel_layout(const at::Tensor& tensor, bool wants_statistics) {
  if (tensor.dim() < 2 || tensor.numel() == 0 || !is_row_element(tensor.scalar_type()) ||
      tensor.is_neg() || tensor._is_zerotensor()) {
    return {};
  }
  const std::int64_t channels = tensor.size(1), places = tensor.numel() / channels;
  if (tensor.is_contiguous()) {
    const ChannelLayout layout{tensor.size(0), channels, places / tensor.size(0)};
    if (layout.repeats() == 1 || layout.outer >= kFewestSamples) return layout;
    // Factors for each channel, not for each element: rows are short, but few.
    if (!wants_statistics) return ChannelLayout{places, channels, 1};
    return {};
  }
  if (tensor.is_contiguous(c10::MemoryFormat::ChannelsLast) ||
      tensor.is_contiguous(c10::MemoryFormat::ChannelsLast3d)) {
    const std::int64_t columns = tensor.size(-1), tiled = columns * channels;
    const bool tiles = channels < kShortRow && tiled <= kLongestTiledRow && places > columns;
    return ChannelLayout{places, channels, 1, tiles ? columns : 1};
  }
  return {};
}

/// Several rows of floats, one or more elements for each channel.
at::Tensor channel_rows(std::int64_t rows, ChannelLayout layout, c10::Device device) {
  return empty({rows, layout.channels * layout.repeats()}, c10::kFloat, device);
}

/// Row `index` of them, as an operand beside `input`.
at::Tensor channel_row(const at::Tensor& rows, std::int64_t index, const at::Tensor& input) {
  const auto dims = static_cast<std::size_t>(input.dim() - 1);
  const bool repeated = rows.size(1) != input.size(1);
  const bool tiled = repeated && !input.is_contiguous();
  std::array<std::int64_t, 16> sizes, strides;
  std::int64_t stride = 1;
  for (std::size_t d = dims; d-- > 0;) {
    const bool has = d == 0 || (tiled ? d + 1 == dims : repeated);
    sizes[d] = has ? input.sizes()[d + 1] : 1;
    strides[d] = stride;
    stride *= sizes[d];
  }
  if (tiled) {
    // All channels of a column, then those of the next.
    strides[0] = 1;
    strides[dims - 1] = sizes[0];
  }
  return make_tensor(rows.storage(), c10::kFloat, {sizes.data(), dims}, {strides.data(), dims},
                     index * rows.size(1));
}

float* factors_in(const TensorRef& rows) { return reinterpret_cast<float*>(rows.data()); }

/// input * factors[0] + factors[1], for each channel.
bool record_affine(const at::Tensor& output, const at::Tensor& input, const at::Tensor& factors) {
  FusedOperator f("native_batch_norm", input.scalar_type());
  // What is loaded has to live until it is recorded.
  const at::Tensor scale = channel_row(factors, 0, input);
  const at::Tensor shift = channel_row(factors, 1, input);
  const Node x = f.load(input);
  f.store(f.apply(Op::kMulAdd, x, f.load_as_is(scale), f.load_as_is(shift)), output);
  return f.record(output.device());
}

/// (grad - factors[2]) * factors[0] + (input - factors[3]) * factors[1], for each channel.
bool record_gradient(const at::Tensor& to, const at::Tensor& grad, const at::Tensor& input,
                     const at::Tensor& factors) {
  FusedOperator f("native_batch_norm_backward", input.scalar_type());
  std::array<at::Tensor, 4> rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = channel_row(factors, static_cast<std::int64_t>(i), input);
  }
  const auto factor = [&](std::size_t index) { return f.load_as_is(rows[index]); };
  const Node g = f.load(grad), x = f.load(input);
  const Node from_grad = f.mul(f.sub(g, factor(2)), factor(0));
  f.store(f.apply(Op::kMulAdd, f.sub(x, factor(3)), factor(1), from_grad), to);
  return f.record(to.device());
}

/// grad * factors[0], for each channel.
bool record_scaling(const at::Tensor& to, const at::Tensor& grad, const at::Tensor& factors) {
  FusedOperator f("native_batch_norm_backward", grad.scalar_type());
  const at::Tensor scale = channel_row(factors, 0, grad);
  f.store(f.mul(f.load(grad), f.load_as_is(scale)), to);
  return f.record(to.device());
}

void evaluation_factors(Grid&, const TensorRef& to, const TensorRef& running_mean,
                        const TensorRef& running_var, const TensorRef& weight,
                        const TensorRef& bias, double eps, ChannelLayout layout) {
  kernels::norm::evaluation_factors(layout,
                                    {.weight = row_numbers(weight),
                                     .bias = row_numbers(bias),
                                     .running_mean = row_numbers(running_mean),
                                     .running_var = row_numbers(running_var)},
                                    eps, factors_in(to));
}

struct TrainingNumbers {
  ChannelLayout layout;
  double momentum, eps;
};

void training_factors(Grid& grid, const TensorRef& to, const TensorRef& mean,
                      const TensorRef& invstd, const TensorRef& running_mean,
                      const TensorRef& running_var, const TensorRef& input, const TensorRef& weight,
                      const TensorRef& bias, TrainingNumbers numbers) {
  const ChannelMoments moments =
      channel_moments(grid, input.alias(), numbers.layout, WideMoments::kBySums, numbers.eps);
  kernels::norm::training_factors(numbers.layout, moments.mean.data(), moments.square_sum.data(),
                                  {.weight = row_numbers(weight),
                                   .bias = row_numbers(bias),
                                   .running_mean = row_numbers(running_mean),
                                   .running_var = row_numbers(running_var)},
                                  row_numbers(mean), row_numbers(invstd), numbers.momentum,
                                  numbers.eps, factors_in(to));
}

struct GradientNumbers {
  ChannelLayout layout;
  bool training;
  double eps;
};

void gradient_factors(Grid& grid, const TensorRef& to, const TensorRef& to_weight,
                      const TensorRef& to_bias, const TensorRef& grad, const TensorRef& input,
                      const TensorRef& weight, const TensorRef& mean, const TensorRef& spread,
                      GradientNumbers numbers) {
  const std::int64_t channels = numbers.layout.channels;
  std::vector<float> means(static_cast<std::size_t>(channels));
  with_row_element(mean.dtype(), [&]<class T>() {
    kernels::widen_row<T>(means.data(), reinterpret_cast<const T*>(mean.data()), channels);
  });
  const ChannelGradients sums =
      channel_gradients(grid, grad.alias(), input.alias(), means, numbers.layout);
  kernels::norm::gradient_factors(numbers.layout, means.data(), sums.sum.data(),
                                  sums.product.data(),
                                  {.weight = row_numbers(weight),
                                   .spread = row_numbers(spread),
                                   .to_weight = row_numbers(to_weight),
                                   .to_bias = row_numbers(to_bias)},
                                  numbers.training, numbers.eps, factors_in(to));
}

void evaluation_gradient_factors(Grid&, const TensorRef& to, const TensorRef& weight,
                                 const TensorRef& running_var, GradientNumbers numbers) {
  kernels::norm::evaluation_gradient_factors(numbers.layout, row_numbers(weight),
                                             row_numbers(running_var), numbers.eps, factors_in(to));
}

}  // namespace

std::optional<BatchNormFactors> allocate_batch_norm_factors(const BatchNorm& norm, bool training,
                                                            const at::Tensor& mean,
                                                            const at::Tensor& invstd) {
  const auto layout = channel_layout(norm.input, training);
  if (!layout || norm.input.dim() > fusion_max_dims()) return {};
  for (const at::Tensor* vector :
       {&norm.weight, &norm.bias, &norm.running_mean, &norm.running_var, &mean, &invstd}) {
    if (!takes(*vector, norm.input)) return {};
  }
  if (!are_alike({norm.weight, norm.bias, norm.running_mean, norm.running_var})) return {};
  if (!training && (!norm.running_mean.defined() || !norm.running_var.defined())) return {};
  return BatchNormFactors{*layout, channel_rows(2, *layout, norm.input.device())};
}

void record_batch_norm(const BatchNorm& norm, bool training, const at::Tensor& output,
                       const at::Tensor& mean, const at::Tensor& invstd,
                       const BatchNormFactors& factors) {
  if (training) {
    launch("native_batch_norm", Custom{}, training_factors, out(factors.rows), out(mean),
           out(invstd), inout(norm.running_mean), inout(norm.running_var), norm.input, norm.weight,
           norm.bias, TrainingNumbers{factors.layout, norm.momentum, norm.eps});
  } else {
    launch_ahead("native_batch_norm", evaluation_factors, out(factors.rows), norm.running_mean,
                 norm.running_var, norm.weight, norm.bias, norm.eps, factors.layout);
  }
  TORCH_INTERNAL_ASSERT(record_affine(output, norm.input, factors.rows));
}

std::optional<at::Tensor> launch_batch_norm_gradient_factors(const BatchNormGradient& norm,
                                                             bool wants_input,
                                                             const at::Tensor& to_weight,
                                                             const at::Tensor& to_bias) {
  const at::Tensor &grad = norm.grad, &input = norm.input;
  const auto layout = channel_layout(input, /*wants_statistics=*/true);
  if (!layout || input.dim() > fusion_max_dims() || grad.strides() != input.strides() ||
      grad.scalar_type() != input.scalar_type() || grad.is_neg() || grad._is_zerotensor() ||
      !norm.mean.defined() || !norm.spread.defined()) {
    return {};
  }
  for (const at::Tensor* vector : {&norm.weight, &norm.mean, &norm.spread, &to_weight, &to_bias}) {
    if (!takes(*vector, input)) return {};
  }
  // ATen refuses parameters that are narrower than the input.
  const bool narrower = norm.weight.defined() && input.scalar_type() == c10::kFloat &&
                        norm.weight.scalar_type() != c10::kFloat;
  if (narrower) return {};
  const bool wants_sums = norm.training || to_weight.defined() || to_bias.defined();
  if (!wants_sums && !wants_input) return at::Tensor();
  const GradientNumbers numbers{*layout, norm.training, norm.eps};
  // Statistics that do not depend on the input only scale the gradient.
  at::Tensor factors = channel_rows(norm.training ? 4 : 1, *layout, input.device());
  if (wants_sums) {
    launch("native_batch_norm_backward", Custom{}, gradient_factors, out(factors), out(to_weight),
           out(to_bias), grad, input, norm.weight, norm.mean, norm.spread, numbers);
  } else {
    launch_ahead("native_batch_norm_backward", evaluation_gradient_factors, out(factors),
                 norm.weight, norm.spread, numbers);
  }
  return factors;
}

void record_batch_norm_gradient(const at::Tensor& to_input, const BatchNormGradient& norm,
                                const at::Tensor& factors) {
  TORCH_INTERNAL_ASSERT(norm.training ? record_gradient(to_input, norm.grad, norm.input, factors)
                                      : record_scaling(to_input, norm.grad, factors));
}

}  // namespace loom::ops
