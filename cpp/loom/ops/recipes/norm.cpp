// SPDX-License-Identifier: BSD-3-Clause
// Layer and batch normalisation. Layers are cut along rows; gradients of their parameters are
// summed over parts of the rows in their order.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/batch_norm.h"
#include "loom/ops/recipes/rows/layer_norm.h"
#include "loom/ops/recipes/rows/turned_norm.h"

#include <ATen/native/cpu/mixed_data_type.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_native_batch_norm_legit_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm_backward_native.h>
#include <ATen/ops/native_batch_norm_native.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

namespace native = at::native;
using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr double kLayerElementCost = 3;
// Each part of a parameter's gradient is as large as the parameter.
constexpr std::int64_t kMaxGradientParts = 16;

at::Tensor defined_or_none(const OptionalTensor& tensor) { return tensor ? *tensor : at::Tensor(); }

void check_parameters(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (native::is_mixed_type(input, weight, bias)) {
    native::check_mixed_data_type(input, weight, bias);
  }
}

/// What the kernels have code for; the CPU operator says of others that it has none.
bool is_known(const at::Tensor& input) {
  const c10::ScalarType dtype = input.scalar_type();
  return dtype == c10::kFloat || dtype == c10::kDouble || c10::isReducedFloatingType(dtype);
}

Three layer_norm(const at::Tensor& input, c10::IntArrayRef shape, const OptionalTensor& weight_opt,
                 const OptionalTensor& bias_opt, double eps) {
  if (!is_known(input)) [[unlikely]] {
    return call_fallback<Three, const at::Tensor&, c10::IntArrayRef, const OptionalTensor&,
                         const OptionalTensor&, double>("aten::native_layer_norm", "", input, shape,
                                                        weight_opt, bias_opt, eps);
  }
  const at::Tensor weight = defined_or_none(weight_opt);
  const at::Tensor bias = defined_or_none(bias_opt);
  const auto [rows, row_size] = native::_check_layer_norm_inputs(input, shape, weight, bias);
  check_parameters(input, weight, bias);
  const auto statistics =
      native::param_scalar_type(input, native::is_mixed_type(input, weight, bias));
  const std::int64_t leading = input.dim() - static_cast<std::int64_t>(shape.size());
  at::DimVector stat_sizes(input.sizes().begin(), input.sizes().begin() + leading);
  stat_sizes.resize(input.dim(), 1);
  at::Tensor output = empty(input.sizes(), input.scalar_type(), input.device());
  at::Tensor mean = empty(stat_sizes, statistics, input.device());
  at::Tensor rstd = empty(stat_sizes, statistics, input.device());
  if (rows == 0) return {output, mean, rstd};
  const at::Tensor from_rows = input.contiguous();
  const at::Tensor scales = weight.defined() ? weight.contiguous() : weight;
  const at::Tensor shifts = bias.defined() ? bias.contiguous() : bias;
  if (launch_row_layer_norm(output, mean, rstd, from_rows, scales, shifts, rows, row_size, eps)) {
    return {output, mean, rstd};
  }
  const auto kernel = [](at::Tensor to, at::Tensor to_mean, at::Tensor to_rstd,
                         const at::Tensor& from, const at::Tensor& scale, const at::Tensor& shift,
                         std::int64_t elements, double epsilon) {
    native::LayerNormKernel(c10::kCPU, from, scale, shift, from.size(0), elements, epsilon, &to,
                            &to_mean, &to_rstd);
  };
  launch("native_layer_norm",
         Rows{.leading = static_cast<std::int8_t>(leading),
              .cut = 0b1111,
              .cost = kLayerElementCost * static_cast<double>(row_size)},
         kernel, out(output), out(mean), out(rstd), from_rows, scales, shifts, row_size, eps);
  return {output, mean, rstd};
}

/// How the rows of a gradient are cut.
struct RowCut {
  std::int64_t rows, row_size, block;
  std::int8_t leading;

  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(rows, block); }
  [[nodiscard]] at::Tensor part(const TensorRef& whole, std::int64_t index) const {
    SlicePlan plan;
    plan.items = rows;
    plan.block = block;
    plan.leading = leading;
    plan.modes.fill(SlicePlan::kRows);
    return plan.slice(whole, 0, index * block);
  }
};

/// Room for the parts of a parameter's gradient; undefined if it is not asked for.
at::Tensor gradient_parts(const TensorRef& gradient, std::int64_t count) {
  if (!gradient.defined()) return {};
  at::DimVector sizes{count};
  sizes.append(gradient.sizes().begin(), gradient.sizes().end());
  return at::empty(sizes, c10::TensorOptions(c10::kCPU).dtype(gradient.dtype()));
}

void add_up(const at::Tensor& parts, const TensorRef& gradient) {
  if (!parts.defined()) return;
  at::Tensor to = gradient.alias();
  at::cpu::sum_outf(parts, c10::IntArrayRef{0}, false, std::nullopt, to);
}

// Runs on the worker.
void layer_norm_gradients(Grid& grid, const TensorRef& input_gradient,
                          const TensorRef& weight_gradient, const TensorRef& bias_gradient,
                          const TensorRef& grad, const TensorRef& input, const TensorRef& mean,
                          const TensorRef& rstd, const TensorRef& weight, RowCut cut) {
  const at::Tensor weight_parts = gradient_parts(weight_gradient, cut.count());
  const at::Tensor bias_parts = gradient_parts(bias_gradient, cut.count());
  grid.run(cut.count(), [&](std::int64_t index) {
    const at::Tensor from = cut.part(grad, index);
    at::Tensor to = cut.part(input_gradient, index);
    at::Tensor to_weight = weight_parts.defined() ? weight_parts.select(0, index) : at::Tensor();
    at::Tensor to_bias = bias_parts.defined() ? bias_parts.select(0, index) : at::Tensor();
    native::LayerNormBackwardKernel(c10::kCPU, from, cut.part(input, index), cut.part(mean, index),
                                    cut.part(rstd, index), weight.alias(), from.size(0),
                                    cut.row_size, &to, &to_weight, &to_bias);
  });
  add_up(weight_parts, weight_gradient);
  add_up(bias_parts, bias_gradient);
}

at::Tensor parameter_gradient(const at::Tensor& like, const at::Tensor& input,
                              c10::IntArrayRef shape) {
  return empty(shape, like.defined() ? like.scalar_type() : input.scalar_type(), input.device());
}

Three layer_norm_backward(const at::Tensor& grad, const at::Tensor& input, c10::IntArrayRef shape,
                          const at::Tensor& mean, const at::Tensor& rstd,
                          const OptionalTensor& weight_opt, const OptionalTensor& bias_opt,
                          std::array<bool, 3> mask) {
  const at::Tensor weight = defined_or_none(weight_opt);
  const at::Tensor bias = defined_or_none(bias_opt);
  const auto [rows, row_size] = native::_check_layer_norm_inputs(input, shape, weight, bias);
  check_parameters(input, weight, bias);
  at::Tensor to_input, to_weight, to_bias;
  if (mask[0]) to_input = empty(input.sizes(), input.scalar_type(), input.device());
  if (mask[1]) to_weight = parameter_gradient(weight, input, shape);
  if (mask[2]) to_bias = parameter_gradient(weight, input, shape);
  if (rows == 0 || row_size == 0) {
    if (mask[1]) to_weight.zero_();
    if (mask[2]) to_bias.zero_();
    return {to_input, to_weight, to_bias};
  }
  const at::Tensor grads = grad.contiguous(), inputs = input.contiguous();
  const at::Tensor means = mean.contiguous(), rstds = rstd.contiguous();
  const at::Tensor scales = weight.defined() ? weight.contiguous() : weight;
  if (launch_row_layer_norm_gradient(to_input, to_weight, to_bias, grads, inputs, means, rstds,
                                     scales, rows, row_size)) {
    return {to_input, to_weight, to_bias};
  }
  const double cost = 2 * kLayerElementCost * static_cast<double>(row_size);
  const std::int64_t fewest = ceil_div(rows, kMaxGradientParts);
  const RowCut cut{
      .rows = rows,
      .row_size = row_size,
      .block = std::max(block_length(rows, cost), fewest),
      .leading = static_cast<std::int8_t>(input.dim() - static_cast<std::int64_t>(shape.size()))};
  launch_on(input.device(), "native_layer_norm_backward", Custom{}, layer_norm_gradients,
            out(to_input), out(to_weight), out(to_bias), grads, inputs, means, rstds, scales, cut);
  return {to_input, to_weight, to_bias};
}

void check_batch_norm(const at::Tensor& input, const at::Tensor& parameter, const char* name) {
  if (input.numel() == 0) return;
  TORCH_CHECK(!parameter.defined() || parameter.numel() == input.size(1), name, " should contain ",
              input.size(1), " elements not ", parameter.numel());
}

/// How the result of a batch norm lies, which is not what suggest_memory_format() says where a
/// dimension has one element.
c10::MemoryFormat format_of_result(const at::Tensor& input) {
  if (input.is_contiguous()) return c10::MemoryFormat::Contiguous;
  for (const auto last : {c10::MemoryFormat::ChannelsLast, c10::MemoryFormat::ChannelsLast3d}) {
    if (input.is_contiguous(last)) return last;
  }
  return input.suggest_memory_format();
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.is_contiguous() || tensor.is_contiguous(c10::MemoryFormat::ChannelsLast) ||
         tensor.is_contiguous(c10::MemoryFormat::ChannelsLast3d);
}

/// How the gradient of the input lies.
c10::MemoryFormat format_of_gradient(const at::Tensor& grad, const at::Tensor& input) {
  const c10::MemoryFormat suggested = input.suggest_memory_format();
  const bool alike = is_dense(input) && is_dense(grad) && grad.suggest_memory_format() == suggested;
  return alike ? format_of_result(input) : suggested;
}

/// A tensor that is contiguous in the format, with the strides of others in it where a dimension
/// has one element, too: kernels look at these.
at::Tensor with_usual_strides(const at::Tensor& tensor, c10::MemoryFormat format) {
  const auto sizes = tensor.sizes();
  switch (format) {
    case c10::MemoryFormat::ChannelsLast:
      return tensor.as_strided(sizes, c10::get_channels_last_strides_2d(sizes));
    case c10::MemoryFormat::ChannelsLast3d:
      return tensor.as_strided(sizes, c10::get_channels_last_strides_3d(sizes));
    default:
      return tensor.as_strided(sizes, c10::contiguous_strides(sizes));
  }
}

Three batch_norm(const at::Tensor& input, const OptionalTensor& weight_opt,
                 const OptionalTensor& bias_opt, const OptionalTensor& running_mean_opt,
                 const OptionalTensor& running_var_opt, bool training, double momentum,
                 double eps) {
  if (!is_known(input)) [[unlikely]] {
    return call_fallback<Three, const at::Tensor&, const OptionalTensor&, const OptionalTensor&,
                         const OptionalTensor&, const OptionalTensor&, bool, double, double>(
        "aten::native_batch_norm", "", input, weight_opt, bias_opt, running_mean_opt,
        running_var_opt, training, momentum, eps);
  }
  const at::Tensor weight = defined_or_none(weight_opt);
  const at::Tensor bias = defined_or_none(bias_opt);
  const at::Tensor running_mean = defined_or_none(running_mean_opt);
  const at::Tensor running_var = defined_or_none(running_var_opt);
  check_batch_norm(input, running_mean, "running_mean");
  check_batch_norm(input, running_var, "running_var");
  check_batch_norm(input, weight, "weight");
  check_batch_norm(input, bias, "bias");
  check_parameters(input, weight, bias);
  const auto dtype = native::param_scalar_type(
      input, native::is_mixed_type(input, weight, bias, running_mean, running_var));
  const std::int64_t channels = training ? input.size(1) : 0;
  at::Tensor mean = empty({channels}, dtype, input.device());
  at::Tensor invstd = empty({channels}, dtype, input.device());
  const c10::MemoryFormat format = format_of_result(input);
  // The out= kernel leaves the statistics of other layouts unset.
  const at::Tensor from = training ? input.contiguous(format) : input;
  const BatchNorm norm{from, weight, bias, running_mean, running_var, momentum, eps};
  const auto factors = allocate_batch_norm_factors(norm, training, mean, invstd);
  at::Tensor output = empty(input.sizes(), input.scalar_type(), input.device(), format);
  if (factors) {
    record_batch_norm(norm, training, output, mean, invstd, *factors);
    return {output, mean, invstd};
  }
  if (training && launch_channel_norm(norm, output, mean, invstd)) {
    return {output, mean, invstd};
  }
  const auto kernel = [](at::Tensor to, at::Tensor to_mean, at::Tensor to_invstd,
                         const at::Tensor& to_running_mean, const at::Tensor& to_running_var,
                         const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift,
                         bool train, double rate, double epsilon) {
    native::batch_norm_cpu_out(in, scale, shift, to_running_mean, to_running_var, train, rate,
                               epsilon, to, to_mean, to_invstd);
  };
  launch("native_batch_norm", Whole{}, kernel, out(output), out(mean), out(invstd),
         inout(running_mean), inout(running_var), from, weight, bias, training, momentum, eps);
  return {output, mean, invstd};
}

Three batch_norm_legit(const at::Tensor& input, const OptionalTensor& weight,
                       const OptionalTensor& bias, at::Tensor& running_mean,
                       at::Tensor& running_var, bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Three batch_norm_no_stats(const at::Tensor& input, const OptionalTensor& weight,
                          const OptionalTensor& bias, bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, {}, {}, training, momentum, eps);
}

Three batch_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                          const OptionalTensor& weight_opt, const OptionalTensor& running_mean_opt,
                          const OptionalTensor& running_var_opt,
                          const OptionalTensor& save_mean_opt,
                          const OptionalTensor& save_invstd_opt, bool train, double eps,
                          std::array<bool, 3> mask) {
  // ATen's kernel of channels last reads them as if they were contiguous.
  const auto contiguous = [](const OptionalTensor& vector) {
    return vector && vector->defined() ? vector->contiguous() : at::Tensor();
  };
  const at::Tensor weight = contiguous(weight_opt);
  const at::Tensor running_mean = contiguous(running_mean_opt);
  const at::Tensor running_var = contiguous(running_var_opt);
  const at::Tensor save_mean = contiguous(save_mean_opt);
  const at::Tensor save_invstd = contiguous(save_invstd_opt);
  at::Tensor to_input, to_weight, to_bias;
  const auto dtype = native::param_scalar_type(
      input,
      native::is_mixed_type(input, weight, running_mean, running_var, save_mean, save_invstd));
  if (mask[1]) to_weight = empty({input.size(1)}, dtype, input.device());
  if (mask[2]) to_bias = empty({input.size(1)}, dtype, input.device());
  const at::Tensor mean = train ? save_mean : running_mean;
  const at::Tensor spread = train ? save_invstd : running_var;
  const c10::MemoryFormat format = format_of_result(input);
  at::Tensor grads = grad.contiguous(format), inputs = input.contiguous(format);
  if (grads.strides() != inputs.strides()) {
    grads = with_usual_strides(grads, format);
    inputs = with_usual_strides(inputs, format);
  }
  const BatchNormGradient norm{grads, inputs, weight, mean, spread, train, eps};
  const auto factors = launch_batch_norm_gradient_factors(norm, mask[0], to_weight, to_bias);
  if (mask[0]) {
    to_input =
        empty(input.sizes(), input.scalar_type(), input.device(), format_of_gradient(grad, input));
  }
  if (factors) {
    if (mask[0]) record_batch_norm_gradient(to_input, norm, *factors);
    return {to_input, to_weight, to_bias};
  }
  if (launch_channel_norm_gradient(norm, to_input, to_weight, to_bias)) {
    return {to_input, to_weight, to_bias};
  }
  const auto kernel = [](const at::Tensor& input_to, const at::Tensor& weight_to,
                         const at::Tensor& bias_to, const at::Tensor& from, const at::Tensor& in,
                         const at::Tensor& scale, const at::Tensor& mean, const at::Tensor& var,
                         const at::Tensor& saved_mean, const at::Tensor& saved_invstd,
                         bool training, double epsilon, std::array<bool, 3> wanted) {
    const auto [a, b, c] = native::batch_norm_backward_cpu(from, in, scale, mean, var, saved_mean,
                                                           saved_invstd, training, epsilon, wanted);
    if (wanted[0]) input_to.copy_(a);
    if (wanted[1]) weight_to.copy_(b);
    if (wanted[2]) bias_to.copy_(c);
  };
  launch_on(input.device(), "native_batch_norm_backward", Whole{}, kernel, out(to_input),
            out(to_weight), out(to_bias), grads, inputs, weight, running_mean, running_var,
            save_mean, save_invstd, train, eps, mask);
  return {to_input, to_weight, to_bias};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", TORCH_FN(layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  m.impl("native_batch_norm", TORCH_FN(batch_norm));
  m.impl("_native_batch_norm_legit", TORCH_FN(batch_norm_legit));
  m.impl("_native_batch_norm_legit.no_stats", TORCH_FN(batch_norm_no_stats));
  m.impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
}

}  // namespace loom::ops
