// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What batch norm does once for each channel: statistics become factors of the elements, and
// running statistics are updated. Thread: any; only what is passed is touched.

#include "loom/kernels/norm/channels.h"
#include "loom/kernels/norm/numbers.h"

#include <cstdint>

namespace loom::kernels::norm {

// Factors are rows of layout.channels * layout.repeats() floats.

/// input * factors[0] + factors[1] is the result.
struct BatchNormVectors {
  Numbers weight, bias, running_mean, running_var;
};
void evaluation_factors(ChannelLayout layout, const BatchNormVectors& vectors, double eps,
                        float* factors) noexcept;

/// The same from the statistics of the batch. Saves the mean and the deviation's inverse, and
/// updates the running statistics.
void training_factors(ChannelLayout layout, const double* batch_mean, const double* square_sum,
                      const BatchNormVectors& vectors, const Numbers& mean, const Numbers& invstd,
                      double momentum, double eps, float* factors) noexcept;

struct BatchNormGradientVectors {
  Numbers weight;
  Numbers spread;  ///< the saved inverse deviation in training, else the running variance
  Numbers to_weight, to_bias;
};
/// (grad - factors[2]) * factors[0] + (input - factors[3]) * factors[1] is the input's gradient in
/// training, else grad * factors[0], the one row that there is then. `sum` and `product` are those
/// of channel_gradients().
void gradient_factors(ChannelLayout layout, const float* mean, const double* sum,
                      const double* product, const BatchNormGradientVectors& vectors, bool training,
                      double eps, float* factors) noexcept;

/// grad * factors[0] is the input's gradient.
void evaluation_gradient_factors(ChannelLayout layout, const Numbers& weight,
                                 const Numbers& running_var, double eps, float* factors) noexcept;

}  // namespace loom::kernels::norm
