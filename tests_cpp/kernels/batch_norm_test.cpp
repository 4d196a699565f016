// SPDX-License-Identifier: BSD-3-Clause
// Factors of batch norm against the formulas, for parameters of both dtypes and for none.
#include "loom/kernels/norm/batch_norm.h"

#include "loom/kernels/norm/evaluation_factors.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <cmath>
#include <vector>

namespace loom::kernels::norm {
namespace {

using simd::BFloat16;
using testing::elements;
using testing::exact;
using testing::ulps;

constexpr double kEps = 0.125, kMomentum = 0.25;
// Channels last, long runs and short ones, whose factors are repeated, as are those of tiles.
constexpr ChannelLayout kLayouts[] = {{20, 5, 1}, {4, 5, 64}, {4, 5, 9}, {20, 5, 1, 4}};
// Of a few operations in float32.
constexpr double kUlps = 4;

template <class T>
std::vector<T> positive(std::uint32_t seed) {
  auto numbers = elements<T>(5, seed);
  for (T& number : numbers) simd::round_to(number, std::abs(simd::widen(number)) + 0.5F);
  return numbers;
}

/// Each channel's factor stands layout.repeats() times.
void expect_row(const std::vector<float>& factors, ChannelLayout layout, std::int64_t row,
                std::int64_t channel, double expected) {
  for (std::int64_t i = 0; i < layout.repeats(); ++i) {
    const std::int64_t at = layout.tiles > 1
                                ? (row * layout.tiles + i) * layout.channels + channel
                                : (row * layout.channels + channel) * layout.repeats() + i;
    EXPECT_LE(ulps(factors[at], expected), kUlps) << row << ", " << channel;
  }
}

std::vector<float> rows_of_factors(ChannelLayout layout, std::int64_t rows) {
  return std::vector<float>(static_cast<std::size_t>(rows * layout.channels * layout.repeats()));
}

template <class T>
class BatchNormTest : public ::testing::Test {
 protected:
  std::vector<T> weight = positive<T>(1), bias = positive<T>(2), mean = positive<T>(3),
                 var = positive<T>(4);
  std::vector<double> first = {-0.5, 1, 2, 3.5, -4}, second = {10, 20, 0.5, 0, 7};
  std::vector<T> saved = std::vector<T>(5), more = std::vector<T>(5);

  [[nodiscard]] BatchNormVectors vectors() {
    return {.weight = Numbers(weight.data()),
            .bias = Numbers(bias.data()),
            .running_mean = Numbers(mean.data()),
            .running_var = Numbers(var.data())};
  }
  static void expect_stored(T actual, double expected) {
    EXPECT_LE(ulps(actual, expected), sizeof(T) == 2 ? 0.51 : 1);
  }
};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(BatchNormTest, Types);

// As on cpu, where the instruction set has sums of products.
TEST(EvaluationFactorsTest, ShiftsAreRoundedOnceOrAfterEachOperation) {
  constexpr std::int64_t kChannels = 71;
  const auto weight = elements<float>(kChannels, 1), bias = elements<float>(kChannels, 2),
             mean = elements<float>(kChannels, 3), spread = elements<float>(kChannels, 4);
  std::vector<float> variance, factors(kChannels), shifts(kChannels);
  for (const float number : spread) variance.push_back(number * number);
  factors_of_floats(kChannels, {weight.data(), bias.data(), mean.data(), variance.data()}, 1e-5F,
                    factors.data(), shifts.data());
  for (std::size_t c = 0; c < factors.size(); ++c) {
    const float inverse = 1 / std::sqrt(variance[c] + 1e-5F), factor = inverse * weight[c];
    const volatile float product = mean[c] * factor;
    EXPECT_EQ(factors[c], factor) << c;
    const float shift = shifts[c];
    EXPECT_TRUE(shift == bias[c] - product || shift == std::fma(-mean[c], factor, bias[c])) << c;
  }
}

TYPED_TEST(BatchNormTest, EvaluationUsesRunningStatistics) {
  for (const ChannelLayout layout : kLayouts) {
    auto factors = rows_of_factors(layout, 2), of_gradient = rows_of_factors(layout, 1);
    evaluation_factors(layout, this->vectors(), kEps, factors.data());
    evaluation_gradient_factors(layout, Numbers(this->weight.data()), Numbers(this->var.data()),
                                kEps, of_gradient.data());
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      const double factor = exact(this->weight[c]) / std::sqrt(exact(this->var[c]) + kEps);
      expect_row(factors, layout, 0, c, factor);
      expect_row(of_gradient, layout, 0, c, factor);
      const std::int64_t first = layout.tiles > 1 ? c : c * layout.repeats();
      const double shift = factors[layout.channels * layout.repeats() + first];
      EXPECT_NEAR(shift, exact(this->bias[c]) - exact(this->mean[c]) * factor, 0x1p-20);
    }
  }
}

TYPED_TEST(BatchNormTest, TrainingUsesTheBatchAndUpdatesWhatRuns) {
  for (const ChannelLayout layout : kLayouts) {
    const auto mean = this->mean, var = this->var;
    auto factors = rows_of_factors(layout, 2);
    training_factors(layout, this->first.data(), this->second.data(), this->vectors(),
                     Numbers(this->saved.data()), Numbers(this->more.data()), kMomentum, kEps,
                     factors.data());
    const auto count = static_cast<double>(layout.outer * layout.inner);
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      const double inverse = 1 / std::sqrt(this->second[c] / count + kEps);
      const double factor = inverse * exact(this->weight[c]);
      expect_row(factors, layout, 0, c, factor);
      expect_row(factors, layout, 1, c, exact(this->bias[c]) - this->first[c] * factor);
      this->expect_stored(this->saved[c], this->first[c]);
      this->expect_stored(this->more[c], inverse);
      this->expect_stored(this->mean[c],
                          kMomentum * this->first[c] + (1 - kMomentum) * exact(mean[c]));
      this->expect_stored(this->var[c], kMomentum * this->second[c] / (count - 1) +
                                            (1 - kMomentum) * exact(var[c]));
    }
  }
}

TYPED_TEST(BatchNormTest, GradientsOfTheInputAndOfTheParameters) {
  const auto means = elements<float>(5, 5);
  for (const bool training : {false, true}) {
    for (const ChannelLayout layout : kLayouts) {
      auto factors = rows_of_factors(layout, training ? 4 : 1);
      gradient_factors(layout, means.data(), this->first.data(), this->second.data(),
                       {.weight = Numbers(this->weight.data()),
                        .spread = Numbers(this->var.data()),
                        .to_weight = Numbers(this->saved.data()),
                        .to_bias = Numbers(this->more.data())},
                       training, kEps, factors.data());
      const auto count = static_cast<double>(layout.outer * layout.inner);
      for (std::int64_t c = 0; c < layout.channels; ++c) {
        const double spread = exact(this->var[c]);
        const double inverse = training ? spread : 1 / std::sqrt(spread + kEps);
        const double scale = inverse * exact(this->weight[c]);
        expect_row(factors, layout, 0, c, scale);
        if (training) {
          expect_row(factors, layout, 1, c, -scale * this->second[c] * inverse * inverse / count);
          expect_row(factors, layout, 2, c, this->first[c] / count);
          expect_row(factors, layout, 3, c, means[c]);
        }
        EXPECT_LE(ulps(this->saved[c], this->second[c] * inverse),
                  sizeof(TypeParam) == 2 ? 0.51 : 4);
        this->expect_stored(this->more[c], this->first[c]);
      }
    }
  }
}

TEST(BatchNormVectorsTest, WhatIsAbsentCountsForNothing) {
  const ChannelLayout layout{3, 2, 1};
  std::vector<float> factors(4);
  const std::vector<double> mean = {1, -2}, squares = {-3 * kEps, 6};
  training_factors(layout, mean.data(), squares.data(), {}, {}, {}, kMomentum, kEps,
                   factors.data());
  EXPECT_EQ(factors[0], 0) << "no variance at all";
  EXPECT_LE(ulps(factors[1], 1 / std::sqrt(2 + kEps)), kUlps);
  EXPECT_EQ(factors[2], 0);
  EXPECT_LE(ulps(factors[3], 2 / std::sqrt(2 + kEps)), kUlps);
}

}  // namespace
}  // namespace loom::kernels::norm
