// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums over all samples and places of each channel, on all cores: what batch norm needs to know of
// its input, and the gradients of biases. The order of a sum follows from the shape alone. Thread:
// the worker's, but for launch_channel_sums().

#include "loom/kernels/norm/channels.h"
#include "loom/ops/cuts/reduce.h"
#include "loom/ops/launch/launch.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace loom::ops {

using kernels::norm::ChannelLayout;

/// How the elements of a reduction of dense `self` lie in memory, if each of what is kept (which
/// are the channels, in their order) has its elements in one place, or in places equally far apart.
[[nodiscard]] std::optional<ChannelLayout> channel_layout_of(const at::Tensor& self,
                                                             Reduced reduced);

struct ChannelMoments {
  std::vector<double> mean, square_sum;  // of the distances from the mean
};
/// How a channel is computed in double whose squares leave the range of float32.
enum class WideMoments {
  kBySteps,  ///< Welford's, as ATen's variances: the mean of an infinite element and others is NaN
  kBySums,   ///< as ATen's batch norm: that mean is infinite
};
/// `eps`: what is added to variances. Squares that it outweighs need no more digits.
[[nodiscard]] ChannelMoments channel_moments(Grid& grid, const at::Tensor& input,
                                             ChannelLayout layout, WideMoments wide, double eps);

struct ChannelGradients {
  std::vector<double> sum, product;  // of grad, and of grad * (input - mean)
};
[[nodiscard]] ChannelGradients channel_gradients(Grid& grid, const at::Tensor& grad,
                                                 const at::Tensor& input,
                                                 const std::vector<float>& mean,
                                                 ChannelLayout layout);

/// Queues result = the sum or mean of `self` over all dimensions before and after those that are
/// kept, if it is for these kernels: float32 or a half type, dense, of some size, and not the sums
/// of rows. Thread: any.
[[nodiscard]] bool launch_channel_sums(const char* name, const at::Tensor& result,
                                       const at::Tensor& self, Reduced reduced, bool mean);

}  // namespace loom::ops
