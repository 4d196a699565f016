// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/batch_norm.h"

#include "loom/ops/empty.h"
#include "loom/ops/fused.h"
#include "loom/ops/launch_open.h"
#include "loom/ops/rows/channel_sums.h"
#include "loom/ops/rows/row_scratch.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace loom::ops {
namespace {

using fusion::Node;
using fusion::Op;

// Short runs of a channel's elements would each be a row of a program: factors are then repeated
// for each element of a run, and a row is a sample, of which there have to be some.
constexpr std::int64_t kFewestSamples = 4;

bool takes(const at::Tensor& parameter) {
  return !parameter.defined() ||
         (row_element(parameter.scalar_type()) && parameter.is_contiguous());
}

/// How often each channel's factor stands in a row of factors.
std::int64_t repeats(ChannelLayout layout) {
  return layout.inner < kShortestRun ? layout.inner : 1;
}

/// Nothing for tensors that are dense in another order.
std::optional<ChannelLayout> channel_layout(const at::Tensor& tensor) {
  if (tensor.dim() < 2 || tensor.numel() == 0 || !row_element(tensor.scalar_type()) ||
      tensor.is_neg() || tensor._is_zerotensor()) {
    return {};
  }
  const std::int64_t channels = tensor.size(1), places = tensor.numel() / channels;
  if (tensor.is_contiguous()) {
    const ChannelLayout layout{tensor.size(0), channels, places / tensor.size(0)};
    if (repeats(layout) > 1 && layout.outer < kFewestSamples) return {};
    return layout;
  }
  if (tensor.is_contiguous(c10::MemoryFormat::ChannelsLast) ||
      tensor.is_contiguous(c10::MemoryFormat::ChannelsLast3d)) {
    return ChannelLayout{places, channels, 1};
  }
  return {};
}

/// Several rows of floats, one or more elements for each channel.
at::Tensor channel_rows(std::int64_t rows, ChannelLayout layout, c10::Device device) {
  return empty({rows, layout.channels * repeats(layout)}, c10::kFloat, device);
}

/// Row `index` of them, as an operand beside `input`.
at::Tensor channel_row(const at::Tensor& rows, std::int64_t index, const at::Tensor& input) {
  const auto dims = static_cast<std::size_t>(input.dim() - 1);
  const bool repeated = rows.size(1) != input.size(1);
  std::array<std::int64_t, 16> sizes, strides;
  std::int64_t stride = 1;
  for (std::size_t d = dims; d-- > 0;) {
    sizes[d] = repeated || d == 0 ? input.sizes()[d + 1] : 1;
    strides[d] = stride;
    stride *= sizes[d];
  }
  return make_tensor(rows.storage(), c10::kFloat, {sizes.data(), dims}, {strides.data(), dims},
                     index * rows.size(1));
}

/// Writes a channel's factor into a row.
void set_factor(float* row, std::int64_t channel, std::int64_t repeats, double value) {
  std::fill_n(row + channel * repeats, repeats, static_cast<float>(value));
}

/// A number for each channel. Reading one costs what an array's element does.
class ChannelVector {
 public:
  explicit ChannelVector(const TensorRef& vector)
      : data_(vector.defined() ? vector.data() : nullptr),
        is_float_(vector.defined() && vector.dtype() == c10::kFloat) {}

  [[nodiscard]] float read(std::int64_t channel, float absent) const {
    if (data_ == nullptr) return absent;
    return is_float_ ? reinterpret_cast<const float*>(data_)[channel]
                     : static_cast<float>(reinterpret_cast<const c10::BFloat16*>(data_)[channel]);
  }
  void write(std::int64_t channel, double value) const {
    if (data_ == nullptr) return;
    if (is_float_) {
      reinterpret_cast<float*>(data_)[channel] = static_cast<float>(value);
    } else {
      reinterpret_cast<c10::BFloat16*>(data_)[channel] = static_cast<float>(value);
    }
  }

 private:
  std::byte* data_;
  bool is_float_;
};

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

/// The standard deviation's inverse, from running statistics.
float inverse_of(const ChannelVector& variance, std::int64_t channel, double eps) {
  return 1 / std::sqrt(variance.read(channel, 1) + static_cast<float>(eps));
}

void evaluation_factors(Grid&, const TensorRef& to, const TensorRef& running_mean,
                        const TensorRef& running_var, const TensorRef& weight_ref,
                        const TensorRef& bias_ref, double eps, ChannelLayout layout) {
  const ChannelVector mean(running_mean), var(running_var), weight(weight_ref), bias(bias_ref);
  const std::int64_t each = repeats(layout), row = to.sizes()[1];
  auto* const scale = reinterpret_cast<float*>(to.data());
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const float factor = inverse_of(var, c, eps) * weight.read(c, 1);
    set_factor(scale, c, each, factor);
    set_factor(scale + row, c, each, bias.read(c, 0) - mean.read(c, 0) * factor);
  }
}

struct TrainingNumbers {
  ChannelLayout layout;
  double momentum, eps;
};

void training_factors(Grid& grid, const TensorRef& to, const TensorRef& mean_ref,
                      const TensorRef& invstd_ref, const TensorRef& running_mean_ref,
                      const TensorRef& running_var_ref, const TensorRef& input,
                      const TensorRef& weight_ref, const TensorRef& bias_ref,
                      TrainingNumbers numbers) {
  const ChannelMoments moments = channel_moments(grid, input.alias(), numbers.layout);
  const ChannelVector mean(mean_ref), invstd(invstd_ref), running_mean(running_mean_ref),
      running_var(running_var_ref), weight(weight_ref), bias(bias_ref);
  const std::int64_t channels = numbers.layout.channels, each = repeats(numbers.layout);
  const auto count = static_cast<double>(numbers.layout.count());
  const std::int64_t row = to.sizes()[1];
  auto* const scale = reinterpret_cast<float*>(to.data());
  const auto update = [&](const ChannelVector& running, std::int64_t c, double value) {
    running.write(c, numbers.momentum * value + (1 - numbers.momentum) * running.read(c, 0));
  };
  for (std::int64_t c = 0; c < channels; ++c) {
    const double centre = moments.mean[static_cast<std::size_t>(c)];
    const double squares = moments.square_sum[static_cast<std::size_t>(c)];
    const double variance = squares / count + numbers.eps;
    const double inverse = variance == 0 ? 0 : 1 / std::sqrt(variance);
    mean.write(c, centre);
    invstd.write(c, inverse);
    update(running_mean, c, centre);
    update(running_var, c, squares / (count - 1));
    const double factor = inverse * weight.read(c, 1);
    set_factor(scale, c, each, factor);
    set_factor(scale + row, c, each, bias.read(c, 0) - centre * factor);
  }
}

struct GradientNumbers {
  ChannelLayout layout;
  bool training;
  double eps;
};

void gradient_factors(Grid& grid, const TensorRef& to, const TensorRef& to_weight_ref,
                      const TensorRef& to_bias_ref, const TensorRef& grad, const TensorRef& input,
                      const TensorRef& weight_ref, const TensorRef& mean_ref,
                      const TensorRef& spread_ref, GradientNumbers numbers) {
  const ChannelLayout& layout = numbers.layout;
  const ChannelVector weight(weight_ref), mean(mean_ref), spread(spread_ref);
  const ChannelVector to_weight(to_weight_ref), to_bias(to_bias_ref);
  std::vector<float> means(static_cast<std::size_t>(layout.channels));
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    means[static_cast<std::size_t>(c)] = mean.read(c, 0);
  }
  const ChannelGradients sums = channel_gradients(grid, grad.alias(), input.alias(), means, layout);
  auto* const rows = reinterpret_cast<float*>(to.data());
  const auto count = static_cast<double>(layout.count());
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const auto i = static_cast<std::size_t>(c);
    const double inverse =
        numbers.training ? spread.read(c, 1) : inverse_of(spread, c, numbers.eps);
    const double scale = inverse * weight.read(c, 1);
    const double values[] = {scale, -scale * sums.product[i] * inverse * inverse / count,
                             sums.sum[i] / count, means[i]};
    for (std::int64_t row = 0; row < to.sizes()[0]; ++row) {
      set_factor(rows + row * to.sizes()[1], c, repeats(layout), values[row]);
    }
    to_weight.write(c, sums.product[i] * inverse);
    to_bias.write(c, sums.sum[i]);
  }
}

void evaluation_gradient_factors(Grid&, const TensorRef& to, const TensorRef& weight_ref,
                                 const TensorRef& running_var, GradientNumbers numbers) {
  const ChannelVector weight(weight_ref), var(running_var);
  auto* const scale = reinterpret_cast<float*>(to.data());
  for (std::int64_t c = 0; c < numbers.layout.channels; ++c) {
    set_factor(scale, c, repeats(numbers.layout),
               inverse_of(var, c, numbers.eps) * weight.read(c, 1));
  }
}

}  // namespace

bool record_batch_norm(const BatchNorm& norm, bool training, const at::Tensor& output,
                       const at::Tensor& mean, const at::Tensor& invstd) {
  const auto layout = channel_layout(norm.input);
  if (!layout || norm.input.dim() > fusion_max_dims()) return false;
  for (const at::Tensor* vector :
       {&norm.weight, &norm.bias, &norm.running_mean, &norm.running_var, &mean, &invstd}) {
    if (!takes(*vector)) return false;
  }
  if (!training && (!norm.running_mean.defined() || !norm.running_var.defined())) return false;
  const at::Tensor factors = channel_rows(2, *layout, norm.input.device());
  if (training) {
    launch("native_batch_norm", Custom{}, training_factors, out(factors), out(mean), out(invstd),
           inout(norm.running_mean), inout(norm.running_var), norm.input, norm.weight, norm.bias,
           TrainingNumbers{*layout, norm.momentum, norm.eps});
  } else {
    launch_ahead("native_batch_norm", evaluation_factors, out(factors), norm.running_mean,
                 norm.running_var, norm.weight, norm.bias, norm.eps, *layout);
  }
  TORCH_INTERNAL_ASSERT(record_affine(output, norm.input, factors));
  return true;
}

bool record_batch_norm_gradient(const BatchNormGradient& norm, const at::Tensor& to_input,
                                const at::Tensor& to_weight, const at::Tensor& to_bias) {
  const at::Tensor &grad = norm.grad, &input = norm.input;
  const auto layout = channel_layout(input);
  if (!layout || input.dim() > fusion_max_dims() || grad.strides() != input.strides() ||
      grad.scalar_type() != input.scalar_type() || grad.is_neg() || grad._is_zerotensor() ||
      !norm.mean.defined() || !norm.spread.defined()) {
    return false;
  }
  for (const at::Tensor* vector : {&norm.weight, &norm.mean, &norm.spread, &to_weight, &to_bias}) {
    if (!takes(*vector)) return false;
  }
  // ATen refuses parameters that are narrower than the input.
  const bool narrower = norm.weight.defined() && input.scalar_type() == c10::kFloat &&
                        norm.weight.scalar_type() != c10::kFloat;
  if (narrower) return false;
  const GradientNumbers numbers{*layout, norm.training, norm.eps};
  // Statistics that do not depend on the input only scale the gradient.
  const at::Tensor factors = channel_rows(norm.training ? 4 : 1, *layout, input.device());
  if (norm.training || to_weight.defined() || to_bias.defined()) {
    launch("native_batch_norm_backward", Custom{}, gradient_factors, out(factors), out(to_weight),
           out(to_bias), grad, input, norm.weight, norm.mean, norm.spread, numbers);
  } else if (to_input.defined()) {
    launch_ahead("native_batch_norm_backward", evaluation_gradient_factors, out(factors),
                 norm.weight, norm.spread, numbers);
  }
  if (to_input.defined()) {
    TORCH_INTERNAL_ASSERT(norm.training ? record_gradient(to_input, grad, input, factors)
                                        : record_scaling(to_input, grad, factors));
  }
  return true;
}

}  // namespace loom::ops
