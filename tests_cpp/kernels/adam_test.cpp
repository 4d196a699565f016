// SPDX-License-Identifier: BSD-3-Clause
// A step of Adam and AdamW against the formulas in double precision.
#include "loom/kernels/optim/adam.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <limits>
#include <vector>

namespace loom::kernels::optim {
namespace {

using testing::elements;
using testing::ulps;

// Of sums of two products, one of which may be rounded first, and of means that may cancel.
constexpr double kAllowed = 2 * 0x1p-24;
// Of the new parameter: a root, three products, a quotient and a sum, near numbers below 1.
constexpr double kAllowedOfParameter = 4 * 0x1p-24;

class AdamTest : public testing::SimdTest {
 protected:
  void expect_step(AdamUpdate update, std::int64_t count) {
    const auto parameter = elements<float>(count, 1), gradient = elements<float>(count, 2),
               mean = elements<float>(count, 3);
    auto square = elements<float>(count, 4);
    for (float& value : square) value = std::abs(value);
    auto parameters = parameter, means = mean, squares = square;
    parameters.push_back(7);
    update.parameter = parameters.data();
    update.gradient = gradient.data();
    update.mean = means.data();
    update.square = squares.data();
    adam.of(GetParam())(update, count);
    EXPECT_EQ(parameters.back(), 7) << "beyond the elements";
    for (std::size_t i = 0; i < mean.size(); ++i) {
      const double before = parameter[i];
      const double slope =
          (update.maximize ? -gradient[i] : gradient[i]) + before * update.gradient_decay;
      const double new_mean = mean[i] + (slope - mean[i]) * update.mean_weight;
      const double new_square =
          square[i] * double{update.beta2} + slope * slope * update.square_weight;
      EXPECT_NEAR(means[i], new_mean, kAllowed);
      EXPECT_NEAR(squares[i], new_square, kAllowed);
      const double divisor = std::sqrt(new_square) * update.root_factor + update.eps;
      EXPECT_NEAR(parameters[i], before * update.decay - update.step_size * new_mean / divisor,
                  kAllowedOfParameter);
    }
  }

  static AdamUpdate step() {
    return {.parameter = nullptr,
            .gradient = nullptr,
            .mean = nullptr,
            .square = nullptr,
            .beta1 = 0.9F,
            .beta2 = 0.999F,
            .eps = 1e-2F,
            .mean_weight = 1 - 0.9F,
            .square_weight = 1 - 0.999F,
            .step_size = 0.01F,
            .root_factor = 1.25F,
            .decay = 1,
            .gradient_decay = 0,
            .maximize = false};
  }
};
LOOM_TEST_SIMD_LEVELS(AdamTest);

TEST_P(AdamTest, AnyNumberOfElements) {
  for (const std::int64_t count : testing::kRowLengths) expect_step(step(), count);
}

TEST_P(AdamTest, DecaysTheParameterOrItsGradient) {
  AdamUpdate update = step();
  update.decay = 0.75F;
  expect_step(update, 100);
  update.decay = 1;
  update.gradient_decay = 0.25F;
  update.maximize = true;
  expect_step(update, 100);
}

TEST_P(AdamTest, AMeanOfTheGradientAlone) {
  AdamUpdate update = step();
  update.beta1 = 0;
  update.mean_weight = 1;
  expect_step(update, 100);
}

// Without decay an infinite parameter must not make its gradient NaN.
TEST_P(AdamTest, InfiniteParametersStayAlone) {
  std::vector<float> parameter(20, std::numeric_limits<float>::infinity()), mean(20), square(20);
  const std::vector<float> gradient(20, 1);
  AdamUpdate update = step();
  update.parameter = parameter.data();
  update.gradient = gradient.data();
  update.mean = mean.data();
  update.square = square.data();
  adam.of(GetParam())(update, 20);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_LE(ulps(mean[i], double{update.mean_weight}), 2);
    EXPECT_EQ(parameter[i], std::numeric_limits<float>::infinity());
  }
}

}  // namespace
}  // namespace loom::kernels::optim
