// SPDX-License-Identifier: BSD-3-Clause
// Losses of rows and their gradients against the formulas in double precision.
#include "loom/kernels/norm/class_losses.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace loom::kernels::norm {
namespace {

constexpr std::int64_t kRows = 5, kClasses = 7, kIgnored = -100;

struct ClassLossesTest : ::testing::Test {
  std::array<std::int64_t, kRows> of_rows{3, 0, kIgnored, 6, 3};
  RowClasses classes{of_rows.data(), kClasses, kIgnored};
  std::vector<float> logits = testing::elements<float>(kRows * kClasses, 1, 9);
  std::vector<double> exact = softmax_of(logits);
  std::vector<float> softmax{exact.begin(), exact.end()};

  static std::vector<double> softmax_of(const std::vector<float>& logits) {
    std::vector<double> made(logits.size());
    for (std::size_t row = 0; row < kRows; ++row) {
      double sum = 0;
      for (std::size_t c = 0; c < kClasses; ++c) sum += std::exp(logits[row * kClasses + c]);
      for (std::size_t c = 0; c < kClasses; ++c) {
        made[row * kClasses + c] = std::exp(double{logits[row * kClasses + c]}) / sum;
      }
    }
    return made;
  }
};

TEST_F(ClassLossesTest, LossesFollowFromMaximaAndSums) {
  std::vector<float> losses(kRows, 9), maxima(kRows), sums(kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    const float* const begin = logits.data() + row * kClasses;
    maxima[row] = *std::max_element(begin, begin + kClasses);
    for (std::int64_t c = 0; c < kClasses; ++c) sums[row] += std::exp(begin[c] - maxima[row]);
  }
  row_losses<float>(classes, 0, kRows, logits.data(), maxima.data(), sums.data(), losses.data());
  for (std::size_t row = 0; row < kRows; ++row) {
    const bool counts = of_rows[row] != kIgnored;
    const std::size_t at = row * kClasses + static_cast<std::size_t>(counts ? of_rows[row] : 0);
    EXPECT_NEAR(losses[row], counts ? -std::log(exact[at]) : 0, 1e-5) << row;
  }
}

TEST_F(ClassLossesTest, RowsAreScaledEach) {
  const std::vector<float> scales{2, 3};
  std::vector<float> gradient(2 * kClasses);
  scale_rows(classes, 1, 3, softmax.data() + kClasses, scales.data(), gradient.data());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_EQ(gradient[i], softmax[kClasses + i] * scales[i / kClasses]) << i;
  }
}

TEST_F(ClassLossesTest, LossesAreNegativeLogarithmsOfTheProbabilities) {
  std::vector<float> losses(kRows, 9);
  row_losses(classes, 2, kRows, logits.data() + 2 * kClasses, softmax.data() + 2 * kClasses,
             losses.data());
  row_losses(classes, 0, 2, logits.data(), softmax.data(), losses.data());
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::int64_t chosen = of_rows[row];
    const double expected =
        chosen == kIgnored ? 0
                           : -std::log(exact[row * kClasses + static_cast<std::size_t>(chosen)]);
    EXPECT_NEAR(losses[row], expected, 0x1p-19) << row;
  }
}

TEST_F(ClassLossesTest, GradientsOfClassesLackOne) {
  const auto grads = testing::numbers(kRows, 2);
  std::vector<float> scales(3);
  row_scales(classes, 2, kRows, grads.data(), 1, 4.0F, scales.data());
  EXPECT_EQ(scales, (std::vector<float>{0, grads[3] / 4, grads[4] / 4}));
  row_scales(classes, 1, 3, grads.data(), 0, 1.0F, scales.data());
  EXPECT_EQ(scales, (std::vector<float>{grads[0], 0, grads[4] / 4}));
  std::vector<simd::BFloat16> made(3 * kClasses, simd::BFloat16{7}), expected = made;
  const float* const from = softmax.data() + 2 * kClasses;
  subtract_classes(classes, 2, kRows, from, scales.data(), made.data());
  for (const std::size_t row : {1, 2}) {
    const std::size_t at = row * kClasses + static_cast<std::size_t>(of_rows[row + 2]);
    simd::round_to(expected[at], (from[at] - 1) * scales[row]);
  }
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i].bits, expected[i].bits) << i;
}

TEST_F(ClassLossesTest, ClassesThatThereAreNotAreFoundUnlessIgnored) {
  EXPECT_EQ(classes.rows_that_count(kRows), 4);
  EXPECT_EQ(classes.first_wrong(0, kRows), kRows);
  of_rows[4] = kClasses;
  of_rows[1] = -1;
  EXPECT_EQ(classes.first_wrong(0, kRows), 1);
  EXPECT_EQ(classes.first_wrong(2, kRows), 4);
  EXPECT_EQ(classes.first_wrong(2, 4), 4);
}

}  // namespace
}  // namespace loom::kernels::norm
