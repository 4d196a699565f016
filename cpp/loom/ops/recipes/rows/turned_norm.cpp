// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/turned_norm.h"

#include "loom/base/blocks.h"
#include "loom/kernels/norm/channels.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"

#include <algorithm>
#include <initializer_list>

namespace loom::ops {
namespace {

using namespace kernels::norm;

// Of an element: it is turned, gone through three times, and turned back.
constexpr double kElementCost = 2, kGradientCost = 3;
// Longer rows are vectors themselves.
constexpr std::int64_t kShortestRun = ChannelLayout::kShortestRun;

/// Channels, and the elements of each.
struct Channels {
  std::int64_t count, elements;
};

bool takes(const at::Tensor& input, std::initializer_list<at::Tensor> vectors) {
  if (input.dim() < 3 || input.size(0) != 1 || !is_row_element(input.scalar_type()) ||
      !input.is_contiguous() || input.numel() == 0 || input.is_neg() || input._is_zerotensor()) {
    return false;
  }
  const std::int64_t elements = input.numel() / input.size(1);
  return elements > 1 && elements < kShortestRun &&
         std::all_of(
             vectors.begin(), vectors.end(),
             [&](const at::Tensor& vector) {
               return goes_with_rows(vector, input) &&
                      (!vector.defined() || vector.is_contiguous());
             });
}

Channels channels_of(const at::Tensor& input) {
  return {input.size(1), input.numel() / input.size(1)};
}

/// Calls body(first channel, how many, room for so many turned rows) for groups of channels.
template <class T, class Body>
void for_groups(Grid& grid, const Channels& channels, double cost, int rooms, Body body) {
  const std::int64_t groups = ceil_div(channels.count, kTurnedRows);
  const Blocks blocks(
      groups, block_length(groups, cost * static_cast<double>(channels.elements * kTurnedRows)));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    auto* const room = reinterpret_cast<T*>(row_scratch(channels.elements * kTurnedRows, rooms));
    const auto block = blocks[index];
    for (std::int64_t group = block.first; group < block.last; ++group) {
      const std::int64_t first = group * kTurnedRows;
      body(first, std::min(kTurnedRows, channels.count - first), room);
    }
  });
}

void read(const Numbers& numbers, std::int64_t first, std::int64_t count, float absent, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = numbers.read(first + i, absent);
  std::fill(to + count, to + kTurnedRows, absent);
}

struct Running {
  Numbers mean, variance;
  double momentum;

  void update(std::int64_t channel, double batch_mean, double batch_variance) const {
    const auto mix = [&](const Numbers& running, double value) {
      running.write(channel, momentum * value + (1 - momentum) * running.read(channel, 0));
    };
    mix(mean, batch_mean);
    mix(variance, batch_variance);
  }
};

void normalise(Grid& grid, const TensorRef& output, const TensorRef& mean, const TensorRef& invstd,
               const TensorRef& running_mean, const TensorRef& running_var, const TensorRef& input,
               const TensorRef& weight, const TensorRef& bias, double momentum, double eps,
               Channels channels) {
  const Running running{row_numbers(running_mean), row_numbers(running_var), momentum};
  const Numbers means = row_numbers(mean), deviations = row_numbers(invstd);
  const Numbers scales = row_numbers(weight), shifts = row_numbers(bias);
  with_row_element(input.dtype(), [&]<class T>() {
    for_groups<T>(
        grid, channels, kElementCost, 1, [&](std::int64_t first, std::int64_t count, T* room) {
          float factors[kTurnedRows], terms[kTurnedRows];
          read(scales, first, count, 1, factors);
          read(shifts, first, count, 0, terms);
          TurnedStatistics found;
          turn_rows(elements<const T>(input) + first * channels.elements, count, channels.elements,
                    room);
          normalise_turned<T>(room, channels.elements, {factors, terms, /*of_rows=*/true, eps},
                              found);
          turn_back(room, count, channels.elements,
                    elements<T>(output) + first * channels.elements);
          for (std::int64_t i = 0; i < count; ++i) {
            means.write(first + i, found.mean[i]);
            deviations.write(first + i, found.rstd[i]);
            running.update(
                first + i, found.mean[i],
                static_cast<double>(found.squares[i]) / static_cast<double>(channels.elements - 1));
          }
        });
  });
}

void gradient(Grid& grid, const TensorRef& to_input, const TensorRef& to_weight,
              const TensorRef& to_bias, const TensorRef& grad, const TensorRef& input,
              const TensorRef& weight, const TensorRef& mean, const TensorRef& invstd,
              Channels channels) {
  const Numbers weights = row_numbers(to_weight), biases = row_numbers(to_bias);
  const Numbers scales = row_numbers(weight);
  const Numbers means = row_numbers(mean), deviations = row_numbers(invstd);
  with_row_element(input.dtype(), [&]<class T>() {
    const std::int64_t values = row_pitch(channels.elements * kTurnedRows) *
                                static_cast<std::int64_t>(sizeof(float) / sizeof(T));
    for_groups<T>(
        grid, channels, kGradientCost, 2, [&](std::int64_t first, std::int64_t count, T* room) {
          const std::int64_t begin = first * channels.elements;
          TurnedGradient by;
          read(means, first, count, 0, by.mean);
          read(deviations, first, count, 1, by.rstd);
          read(scales, first, count, 1, by.factors);
          turn_rows(elements<const T>(grad) + begin, count, channels.elements, room);
          turn_rows(elements<const T>(input) + begin, count, channels.elements, room + values);
          turned_norm_gradient<T>(room, room + values, channels.elements, by);
          if (to_input.defined()) {
            turn_back(room, count, channels.elements, elements<T>(to_input) + begin);
          }
          for (std::int64_t i = 0; i < count; ++i) {
            weights.write(first + i, by.products[i]);
            biases.write(first + i, by.sums[i]);
          }
        });
  });
}

}  // namespace

bool launch_channel_norm(const BatchNorm& norm, const at::Tensor& output, const at::Tensor& mean,
                         const at::Tensor& invstd) {
  if (!takes(norm.input,
             {norm.weight, norm.bias, norm.running_mean, norm.running_var, mean, invstd}) ||
      !are_alike({norm.weight, norm.bias, norm.running_mean, norm.running_var})) {
    return false;
  }
  launch("native_batch_norm", Custom{}, normalise, out(output), out(mean), out(invstd),
         inout(norm.running_mean), inout(norm.running_var), norm.input, norm.weight, norm.bias,
         norm.momentum, norm.eps, channels_of(norm.input));
  return true;
}

bool launch_channel_norm_gradient(const BatchNormGradient& norm, const at::Tensor& to_input,
                                  const at::Tensor& to_weight, const at::Tensor& to_bias) {
  const at::Tensor &grad = norm.grad, &input = norm.input;
  // ATen refuses parameters that are narrower than the input.
  const bool narrower = norm.weight.defined() && input.scalar_type() == c10::kFloat &&
                        norm.weight.scalar_type() != c10::kFloat;
  if (!norm.training || narrower || !norm.mean.defined() || !norm.spread.defined() ||
      !takes(input, {norm.weight, norm.mean, norm.spread, to_weight, to_bias}) ||
      !grad.is_contiguous() || grad.scalar_type() != input.scalar_type() || grad.is_neg() ||
      grad._is_zerotensor()) {
    return false;
  }
  launch_on(input.device(), "native_batch_norm_backward", Custom{}, gradient, out(to_input),
            out(to_weight), out(to_bias), grad, input, norm.weight, norm.mean, norm.spread,
            channels_of(input));
  return true;
}

}  // namespace loom::ops
