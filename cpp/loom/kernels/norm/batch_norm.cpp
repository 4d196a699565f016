// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/batch_norm.h"

#include "loom/kernels/norm/evaluation_factors.h"

#include <algorithm>
#include <cmath>

namespace loom::kernels::norm {
namespace {

/// Rows of factors, one or more elements for each channel.
class FactorRows {
 public:
  FactorRows(ChannelLayout layout, float* rows) noexcept
      : layout_(layout), row_(layout.channels * layout.repeats()), rows_(rows) {}

  void set(std::int64_t row, std::int64_t channel, double value) const noexcept {
    const auto number = static_cast<float>(value);
    float* const to = rows_ + row * row_;
    if (layout_.tiles == 1) {
      std::fill_n(to + channel * layout_.repeats(), layout_.repeats(), number);
      return;
    }
    for (std::int64_t at = channel; at < row_; at += layout_.channels) to[at] = number;
  }

 private:
  ChannelLayout layout_;
  std::int64_t row_;
  float* rows_;
};

/// The standard deviation's inverse, from running statistics.
float inverse_of(const Numbers& variance, std::int64_t channel, double eps) noexcept {
  return 1 / std::sqrt(variance.read(channel, 1) + static_cast<float>(eps));
}

}  // namespace

void evaluation_factors(ChannelLayout layout, const BatchNormVectors& vectors, double eps,
                        float* factors) noexcept {
  const bool plain = vectors.running_var.floats() != nullptr &&
                     vectors.running_mean.floats() != nullptr && !vectors.weight.are_halves() &&
                     !vectors.bias.are_halves();
  if (plain && layout.repeats() == 1) {
    return factors_of_floats(layout.channels,
                             {vectors.weight.floats(), vectors.bias.floats(),
                              vectors.running_mean.floats(), vectors.running_var.floats()},
                             static_cast<float>(eps), factors, factors + layout.channels);
  }
  const FactorRows rows(layout, factors);
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const float factor = inverse_of(vectors.running_var, c, eps) * vectors.weight.read(c, 1);
    rows.set(0, c, factor);
    rows.set(1, c, vectors.bias.read(c, 0) - vectors.running_mean.read(c, 0) * factor);
  }
}

void training_factors(ChannelLayout layout, const double* batch_mean, const double* square_sum,
                      const BatchNormVectors& vectors, const Numbers& mean, const Numbers& invstd,
                      double momentum, double eps, float* factors) noexcept {
  const FactorRows rows(layout, factors);
  const auto count = static_cast<double>(layout.count());
  const auto update = [&](const Numbers& running, std::int64_t c, double value) {
    running.write(c, momentum * value + (1 - momentum) * running.read(c, 0));
  };
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const double centre = batch_mean[c], squares = square_sum[c];
    const double variance = squares / count + eps;
    const double inverse = variance == 0 ? 0 : 1 / std::sqrt(variance);
    mean.write(c, centre);
    invstd.write(c, inverse);
    update(vectors.running_mean, c, centre);
    update(vectors.running_var, c, squares / (count - 1));
    const double factor = inverse * vectors.weight.read(c, 1);
    rows.set(0, c, factor);
    rows.set(1, c, vectors.bias.read(c, 0) - centre * factor);
  }
}

void gradient_factors(ChannelLayout layout, const float* mean, const double* sum,
                      const double* product, const BatchNormGradientVectors& vectors, bool training,
                      double eps, float* factors) noexcept {
  const FactorRows rows(layout, factors);
  const auto count = static_cast<double>(layout.count());
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const double inverse =
        training ? vectors.spread.read(c, 1) : inverse_of(vectors.spread, c, eps);
    const double scale = inverse * vectors.weight.read(c, 1);
    rows.set(0, c, scale);
    if (training) {
      rows.set(1, c, -scale * product[c] * inverse * inverse / count);
      rows.set(2, c, sum[c] / count);
      rows.set(3, c, mean[c]);
    }
    vectors.to_weight.write(c, product[c] * inverse);
    vectors.to_bias.write(c, sum[c]);
  }
}

void evaluation_gradient_factors(ChannelLayout layout, const Numbers& weight,
                                 const Numbers& running_var, double eps, float* factors) noexcept {
  const FactorRows rows(layout, factors);
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    rows.set(0, c, inverse_of(running_var, c, eps) * weight.read(c, 1));
  }
}

}  // namespace loom::kernels::norm
