// SPDX-License-Identifier: BSD-3-Clause
// Layer norm of rows and its gradient against the formulas in double precision.
#include "loom/kernels/norm/layer_norm.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <vector>

namespace loom::kernels::norm {
namespace {

using simd::BFloat16;
using testing::elements;
using testing::exact;

constexpr double kEps = 1e-5;
// Half units in the last place of numbers about 1 to 4: sums, distances, the factor, two products.
constexpr double kAllowed = 24 * 0x1p-24;

class LayerNormTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_normal() {
    for (const std::int64_t columns : testing::kRowLengths) {
      const auto row = elements<T>(columns, 1);
      const auto weight = elements<float>(columns, 2), bias = elements<float>(columns, 3);
      std::vector<T> to(row.size() + 1);
      std::vector<float> scratch(row.size() + 32);
      float statistics[2];
      layer_norm_row<T>.of(GetParam())(to.data(), row.data(), weight.data(), bias.data(),
                                       scratch.data(), columns, kEps, statistics);
      double mean = 0, squares = 0;
      for (const T x : row) mean += exact(x) / static_cast<double>(columns);
      for (const T x : row) squares += (exact(x) - mean) * (exact(x) - mean);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(columns) + kEps);
      EXPECT_NEAR(statistics[0], mean, kAllowed);
      EXPECT_NEAR(statistics[1], rstd, rstd * kAllowed);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double expected = (exact(row[i]) - mean) * rstd * weight[i] + bias[i];
        EXPECT_NEAR(exact(to[i]), expected, kAllowed + testing::rounding_of<T>(expected))
            << columns;
      }
      EXPECT_EQ(exact(to.back()), 0) << "beyond the row";
    }
  }

  template <class T>
  void expect_gradients() {
    constexpr float kStatistics[] = {0.25F, 1.5F};
    for (const std::int64_t columns : testing::kRowLengths) {
      const auto grad = elements<T>(columns, 4), row = elements<T>(columns, 5);
      const auto weight = elements<float>(columns, 6);
      const auto before = elements<float>(columns, 7), bias_before = elements<float>(columns, 8);
      std::vector<T> to(row.size()), alone(row.size());
      auto weights = before, biases = bias_before, unasked = before, unasked_biases = bias_before;
      const auto gradient = layer_norm_gradient_row<T>.of(GetParam());
      gradient(to.data(), grad.data(), row.data(), weight.data(), columns, kStatistics,
               weights.data(), biases.data());
      gradient(alone.data(), grad.data(), row.data(), weight.data(), columns, kStatistics, nullptr,
               nullptr);
      gradient(nullptr, grad.data(), row.data(), weight.data(), columns, kStatistics,
               unasked.data(), unasked_biases.data());
      EXPECT_EQ(unasked, weights);
      EXPECT_EQ(unasked_biases, biases);
      const double mean = kStatistics[0], rstd = kStatistics[1];
      double plain = 0, scaled = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double normal = (exact(row[i]) - mean) * rstd;
        plain += exact(grad[i]) * weight[i];
        scaled += exact(grad[i]) * weight[i] * normal;
        EXPECT_NEAR(weights[i], before[i] + exact(grad[i]) * normal, kAllowed);
        EXPECT_NEAR(biases[i], bias_before[i] + exact(grad[i]), kAllowed);
      }
      const auto count = static_cast<double>(columns);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double normal = (exact(row[i]) - mean) * rstd;
        const double expected =
            (exact(grad[i]) * weight[i] - plain / count - normal * scaled / count) * rstd;
        EXPECT_NEAR(exact(to[i]), expected, kAllowed + testing::rounding_of<T>(expected))
            << columns;
        EXPECT_NEAR(exact(alone[i]), expected, kAllowed + testing::rounding_of<T>(expected))
            << columns;
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(LayerNormTest);

TEST_P(LayerNormTest, OfFloats) { expect_normal<float>(); }
TEST_P(LayerNormTest, OfBFloat16) { expect_normal<BFloat16>(); }
TEST_P(LayerNormTest, OfElementsWhoseSquaresFloatCannotHold) {
  constexpr std::int64_t kColumns = 70;
  for (const float scale : {1e-30F, 1e20F, 1e30F}) {
    std::vector<float> row = elements<float>(kColumns, 1), to(kColumns), scratch(kColumns + 32);
    double squares = 0, mean = 0;
    for (float& x : row) {
      x *= scale;
      mean += double{x} / kColumns;
    }
    for (const float x : row) squares += (x - mean) * (x - mean);
    const std::vector<float> ones(kColumns, 1), zeros(kColumns, 0);
    float statistics[2];
    layer_norm_row<float>.of(GetParam())(to.data(), row.data(), ones.data(), zeros.data(),
                                         scratch.data(), kColumns, 0, statistics);
    const double rstd = 1 / std::sqrt(squares / kColumns);
    EXPECT_NEAR(statistics[1], rstd, rstd * kAllowed);
    for (std::size_t i = 0; i < kColumns; ++i) {
      EXPECT_NEAR(to[i], (row[i] - mean) * rstd, kAllowed) << scale;
    }
  }
}

TEST_P(LayerNormTest, GradientsOfFloats) { expect_gradients<float>(); }
TEST_P(LayerNormTest, GradientsOfBFloat16) { expect_gradients<BFloat16>(); }

}  // namespace
}  // namespace loom::kernels::norm
