// SPDX-License-Identifier: BSD-3-Clause
// Normalisation of turned rows and its gradient against the formulas in double.
#include "loom/kernels/norm/turned_norm.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <vector>

namespace loom::kernels::norm {
namespace {

using testing::elements;
using testing::exact;

constexpr double kEps = 1e-5;
// Half units in the last place of numbers about 1 to 4, of sums of up to 63 of them.
constexpr double kAllowed = 64 * 0x1p-24;

struct Moments {
  double mean = 0, rstd = 0;
};

template <class T>
Moments moments_of(const std::vector<T>& turned, std::int64_t columns, std::int64_t row) {
  const auto count = static_cast<double>(columns);
  double mean = 0, squares = 0;
  for (std::int64_t c = 0; c < columns; ++c) mean += exact(turned[c * kTurnedRows + row]) / count;
  for (std::int64_t c = 0; c < columns; ++c) {
    squares += std::pow(exact(turned[c * kTurnedRows + row]) - mean, 2);
  }
  return {mean, 1 / std::sqrt(squares / count + kEps)};
}

class TurnedNormTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_normal(bool of_rows) {
    for (const std::int64_t columns : {2, 3, 16, 24, 63}) {
      const std::vector<T> from = elements<T>(columns * kTurnedRows, 1);
      const auto factors = elements<float>(kTurnedRows, 2), terms = elements<float>(kTurnedRows, 3);
      std::vector<T> made = from;
      TurnedStatistics found;
      normalise_turned<T>.of(GetParam())(made.data(), columns,
                                         {factors.data(), terms.data(), of_rows, kEps}, found);
      for (std::int64_t row = 0; row < kTurnedRows; ++row) {
        const Moments expected = moments_of(from, columns, row);
        EXPECT_NEAR(found.mean[row], expected.mean, kAllowed);
        EXPECT_NEAR(found.rstd[row], expected.rstd, expected.rstd * kAllowed);
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t at = c * kTurnedRows + row, parameter = of_rows ? row : c;
          const double value =
              (exact(from[at]) - expected.mean) * expected.rstd * factors[parameter] +
              terms[parameter];
          EXPECT_NEAR(exact(made[at]), value,
                      expected.rstd * kAllowed + testing::rounding_of<T>(value))
              << columns;
        }
      }
    }
  }

  template <class T>
  void expect_gradient() {
    for (const std::int64_t columns : {2, 16, 49}) {
      const std::vector<T> from = elements<T>(columns * kTurnedRows, 1);
      const std::vector<T> grad = elements<T>(columns * kTurnedRows, 2);
      const auto factors = elements<float>(kTurnedRows, 3);
      TurnedGradient by;
      for (std::int64_t row = 0; row < kTurnedRows; ++row) {
        const Moments moments = moments_of(from, columns, row);
        by.mean[row] = static_cast<float>(moments.mean);
        by.rstd[row] = static_cast<float>(moments.rstd);
        by.factors[row] = factors[row];
      }
      std::vector<T> made = grad;
      turned_norm_gradient<T>.of(GetParam())(made.data(), from.data(), columns, by);
      for (std::int64_t row = 0; row < kTurnedRows; ++row) {
        const auto slope = [&](std::int64_t c) { return exact(grad[c * kTurnedRows + row]); };
        const auto normal = [&](std::int64_t c) {
          return (exact(from[c * kTurnedRows + row]) - by.mean[row]) * by.rstd[row];
        };
        double sum = 0, product = 0;
        for (std::int64_t c = 0; c < columns; ++c) {
          sum += slope(c);
          product += slope(c) * normal(c);
        }
        const double scale = 1 + by.rstd[row];
        EXPECT_NEAR(by.sums[row], sum, scale * kAllowed);
        EXPECT_NEAR(by.products[row], product, scale * kAllowed);
        for (std::int64_t c = 0; c < columns; ++c) {
          const double value = (slope(c) - sum / columns - normal(c) * product / columns) *
                               by.rstd[row] * factors[row];
          EXPECT_NEAR(exact(made[c * kTurnedRows + row]), value,
                      scale * scale * kAllowed + testing::rounding_of<T>(value))
              << columns;
        }
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(TurnedNormTest);

TEST_P(TurnedNormTest, OfElementsWhoseSquaresFloatCannotHold) {
  constexpr std::int64_t kColumns = 9;
  const std::vector<float> ones(kTurnedRows, 1), zeros(kTurnedRows, 0);
  for (const float scale : {1e-30F, 1e20F, 1e30F}) {
    std::vector<float> from = elements<float>(kColumns * kTurnedRows, 1);
    for (float& x : from) x *= scale;
    std::vector<float> made = from;
    TurnedStatistics found;
    normalise_turned<float>.of(GetParam())(made.data(), kColumns,
                                           {ones.data(), zeros.data(), true, 1e-80}, found);
    for (std::int64_t row = 0; row < kTurnedRows; ++row) {
      double mean = 0, squares = 0;
      for (std::int64_t c = 0; c < kColumns; ++c) {
        mean += double{from[c * kTurnedRows + row]} / kColumns;
      }
      for (std::int64_t c = 0; c < kColumns; ++c) {
        squares += std::pow(from[c * kTurnedRows + row] - mean, 2);
      }
      const double rstd = 1 / std::sqrt(squares / kColumns);
      EXPECT_NEAR(found.rstd[row], rstd, rstd * kAllowed) << scale;
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const std::int64_t at = c * kTurnedRows + row;
        EXPECT_NEAR(made[at], (from[at] - mean) * rstd, kAllowed) << scale;
      }
    }
  }
}

TEST_P(TurnedNormTest, WithParametersOfRows) {
  expect_normal<float>(true);
  expect_normal<simd::BFloat16>(true);
  expect_normal<simd::Half>(true);
}

TEST_P(TurnedNormTest, WithParametersOfColumns) {
  expect_normal<float>(false);
  expect_normal<simd::BFloat16>(false);
  expect_normal<simd::Half>(false);
}

TEST_P(TurnedNormTest, Gradient) {
  expect_gradient<float>();
  expect_gradient<simd::BFloat16>();
  expect_gradient<simd::Half>();
}

// Far from zero the rounding of the mean would be all of the variance.
TEST_P(TurnedNormTest, VarianceFarFromZero) {
  std::vector<float> values(16 * kTurnedRows);
  for (std::int64_t i = 0; i < 16 * kTurnedRows; ++i) {
    values[i] = 30000 + static_cast<float>(i / kTurnedRows % 3) / 256;
  }
  const Moments expected = moments_of(values, 16, 0);
  const std::vector<float> one(kTurnedRows, 1), zero(kTurnedRows, 0);
  TurnedStatistics found;
  normalise_turned<float>.of(GetParam())(values.data(), 16, {one.data(), zero.data(), true, kEps},
                                         found);
  EXPECT_NEAR(found.rstd[5], expected.rstd, expected.rstd * 1e-4);
}

// Batch norm's rule.
TEST_P(TurnedNormTest, RowsOfTheSameNumberWithoutEpsAreTerms) {
  std::vector<float> values(4 * kTurnedRows, 3);
  const std::vector<float> one(kTurnedRows, 1), half(kTurnedRows, 0.5F);
  TurnedStatistics found;
  normalise_turned<float>.of(GetParam())(values.data(), 4, {one.data(), half.data(), true, 0},
                                         found);
  EXPECT_EQ(values, std::vector<float>(4 * kTurnedRows, 0.5F));
}

}  // namespace
}  // namespace loom::kernels::norm
