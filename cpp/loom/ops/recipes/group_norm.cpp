// SPDX-License-Identifier: BSD-3-Clause
// Group normalisation, cut along the batch, or into groups of few samples; gradients of the
// parameters are summed over parts of it in their order.
#include "loom/backend/registration.h"
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
#include <limits>
#include <tuple>

namespace loom::ops {
namespace {

namespace native = at::native;
using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr double kElementCost = 3;
// Each part of a parameter's gradient is as large as the parameter.
constexpr std::int64_t kMaxGradientParts = 16, kMostSampleBlocks = 256;
// Fewer samples are cut into groups.
constexpr std::int64_t kEnoughSamples = 4;
// Of a block of some groups: calling the kernel takes as long as ten thousand or more.
constexpr std::int64_t kElementsOfPart = 65536;

/// Samples, channels, elements of a channel, groups.
struct Shape {
  std::int64_t samples, channels, elements, groups;

  [[nodiscard]] double sample_cost() const noexcept {
    return kElementCost * static_cast<double>(channels) * static_cast<double>(elements);
  }
};

/// As the kernels read it: they know no strides.
at::Tensor parameter(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

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

/// In the memory format that a tensor suggests, also where a dimension has one element.
at::Tensor empty_dense(const at::Tensor& like) {
  return empty(like.sizes(), like.scalar_type(), like.device(), like.suggest_memory_format());
}

/// Blocks of some samples, or, where there are few and channels are planes, of some groups of one.
struct Parts {
  Shape shape;
  std::int64_t samples_at_once, groups_at_once;

  Parts(const Shape& of, double cost, std::int64_t most_samples, bool planes)
      : shape(of),
        samples_at_once(
            std::max(block_length(of.samples, cost), ceil_div(of.samples, most_samples))),
        groups_at_once(of.groups) {
    if (!planes || of.samples >= kEnoughSamples || samples_at_once > 1) return;
    const std::int64_t elements = of.channels * of.elements;
    groups_at_once =
        ceil_div(of.groups, std::clamp<std::int64_t>(elements / kElementsOfPart, 1, of.groups));
  }
  [[nodiscard]] std::int64_t sample_blocks() const noexcept {
    return ceil_div(shape.samples, samples_at_once);
  }
  [[nodiscard]] std::int64_t group_blocks() const noexcept {
    return ceil_div(shape.groups, groups_at_once);
  }
  [[nodiscard]] std::int64_t count() const noexcept { return sample_blocks() * group_blocks(); }
  /// What parameters' gradients are of all samples of a block.
  [[nodiscard]] at::Tensor room(const TensorRef& gradient) const {
    if (!gradient.defined()) return {};
    return at::empty({sample_blocks(), shape.channels},
                     c10::TensorOptions(c10::kCPU).dtype(gradient.dtype()));
  }
};

/// One of them.
struct Part {
  Shape shape;
  std::int64_t sample_block, sample, group, channel;
  bool some_groups;

  Part(const Parts& parts, std::int64_t index)
      : shape(parts.shape),
        sample_block(index / parts.group_blocks()),
        sample(sample_block * parts.samples_at_once),
        group(index % parts.group_blocks() * parts.groups_at_once),
        some_groups(parts.group_blocks() > 1) {
    const std::int64_t of_group = shape.channels / shape.groups;
    shape.samples = std::min(parts.samples_at_once, shape.samples - sample);
    shape.groups = std::min(parts.groups_at_once, shape.groups - group);
    shape.channels = of_group * shape.groups;
    channel = of_group * group;
  }
  /// [samples, channels, ...]
  [[nodiscard]] at::Tensor elements(const TensorRef& whole) const {
    if (!whole.defined()) return {};
    if (!some_groups) return whole.alias_slice(0, sample, shape.samples);
    const std::int64_t sizes[] = {1, shape.channels, shape.elements};
    const std::int64_t strides[] = {shape.channels * shape.elements, shape.elements, 1};
    const std::int64_t first = sample * whole.strides()[0] + channel * shape.elements;
    return make_alias({.data = whole.data() + first * static_cast<std::int64_t>(whole.itemsize()),
                       .sizes = sizes,
                       .strides = strides,
                       .dtype = whole.dtype()});
  }
  /// [samples, groups]
  [[nodiscard]] at::Tensor statistics(const TensorRef& whole) const {
    const at::Tensor all = whole.alias_slice(0, sample, shape.samples);
    return some_groups ? all.narrow(1, group, shape.groups) : all;
  }
  /// [channels]
  [[nodiscard]] at::Tensor parameters(const TensorRef& whole) const {
    return whole.defined() ? whole.alias_slice(0, channel, shape.channels) : at::Tensor();
  }
  [[nodiscard]] at::Tensor gradients(const at::Tensor& room) const {
    return room.defined() ? room.select(0, sample_block).narrow(0, channel, shape.channels)
                          : at::Tensor();
  }
};

// Runs on the worker.
void normalise(Grid& grid, const TensorRef& to, const TensorRef& to_mean, const TensorRef& to_rstd,
               const TensorRef& in, const TensorRef& scale, const TensorRef& shift,
               const Parts& parts, double epsilon) {
  grid.run(parts.count(), [&](std::int64_t index) {
    const Part part(parts, index);
    const Shape& s = part.shape;
    at::Tensor result = part.elements(to), mean = part.statistics(to_mean),
               rstd = part.statistics(to_rstd);
    native::GroupNormKernel(c10::kCPU, part.elements(in), part.parameters(scale),
                            part.parameters(shift), s.samples, s.channels, s.elements, s.groups,
                            epsilon, result, mean, rstd);
  });
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
  const at::Tensor weight = parameter(weight_opt);
  const at::Tensor bias = parameter(bias_opt);
  check(input, weight, bias, shape);
  const at::Tensor from = dense(input);
  const auto statistics =
      native::param_scalar_type(input, native::is_mixed_type(input, weight, bias));
  at::Tensor output = empty_dense(from);
  at::Tensor mean = empty({samples, groups}, statistics, input.device());
  at::Tensor rstd = empty({samples, groups}, statistics, input.device());
  const Parts parts(shape, shape.sample_cost(), kMostSampleBlocks, from.is_contiguous());
  launch("native_group_norm", Custom{}, normalise, out(output), out(mean), out(rstd), from, weight,
         bias, parts, eps);
  return {output, mean, rstd};
}

void add_up(const at::Tensor& parts, const TensorRef& gradient) {
  if (!parts.defined()) return;
  at::Tensor to = gradient.alias();
  at::cpu::sum_outf(parts, c10::IntArrayRef{0}, false, std::nullopt, to);
}

// Runs on the worker.
void gradients(Grid& grid, const TensorRef& to_input, const TensorRef& to_weight,
               const TensorRef& to_bias, const TensorRef& grad, const TensorRef& input,
               const TensorRef& mean, const TensorRef& rstd, const TensorRef& weight,
               const Parts& parts) {
  const at::Tensor weights = parts.room(to_weight);
  const at::Tensor biases = parts.room(to_bias);
  grid.run(parts.count(), [&](std::int64_t index) {
    const Part part(parts, index);
    const Shape& s = part.shape;
    at::Tensor input_to = part.elements(to_input), weight_to = part.gradients(weights),
               bias_to = part.gradients(biases);
    native::GroupNormBackwardKernel(c10::kCPU, part.elements(grad), part.elements(input),
                                    part.statistics(mean), part.statistics(rstd),
                                    part.parameters(weight), s.samples, s.channels, s.elements,
                                    s.groups, input_to, weight_to, bias_to);
  });
  add_up(weights, to_weight);
  add_up(biases, to_bias);
}

Three group_norm_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& rstd, const OptionalTensor& weight_opt,
                          std::int64_t samples, std::int64_t channels, std::int64_t elements,
                          std::int64_t groups, std::array<bool, 3> mask) {
  const at::Tensor weight = parameter(weight_opt);
  const Shape shape{samples, channels, elements, groups};
  const at::Tensor from = dense(input);
  const auto dtype_of_gradients =
      native::param_scalar_type(from, native::is_mixed_type(from, weight));
  at::Tensor to_input, to_weight, to_bias;
  if (mask[0]) to_input = empty_dense(from);
  if (mask[1]) to_weight = empty({channels}, dtype_of_gradients, input.device());
  if (mask[2]) to_bias = empty({channels}, dtype_of_gradients, input.device());
  if (input.numel() == 0) {
    // Of samples without elements cpu makes a mean of nothing.
    const bool no_elements = samples > 0 && elements == 0;
    if (mask[1]) to_weight.fill_(no_elements ? std::numeric_limits<double>::quiet_NaN() : 0.0);
    if (mask[2]) to_bias.zero_();
    return {to_input, to_weight, to_bias};
  }
  const Parts parts(shape, 2 * shape.sample_cost(), kMaxGradientParts, from.is_contiguous());
  launch_on(input.device(), "native_group_norm_backward", Custom{}, gradients, out(to_input),
            out(to_weight), out(to_bias), grad.contiguous(from.suggest_memory_format()), from, mean,
            rstd, weight, parts);
  return {to_input, to_weight, to_bias};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_group_norm", TORCH_FN(group_norm));
  m.impl("native_group_norm_backward", TORCH_FN(group_norm_backward));
}

}  // namespace loom::ops
