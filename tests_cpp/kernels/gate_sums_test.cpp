// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/recurrent/gate_sums.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cstdint>
#include <vector>

namespace loom::kernels::recurrent {
namespace {

using simd::BFloat16;

class GateSumsTest : public testing::SimdTest {
 protected:
  static constexpr std::int64_t kRows = 3, kGates = 4, kFrom = 40, kBias = 37, kTo = 35;

  template <class Bias>
  void expect_sums(std::int64_t units) {
    const auto from = testing::elements<BFloat16>(kRows * kGates * kFrom, 1);
    const auto bias = testing::elements<Bias>(kGates * kBias, 2);
    constexpr std::int64_t kToRow = kGates * kTo + 3;
    std::vector<float> made(static_cast<std::size_t>(kRows * kToRow), 7), expected = made;
    add_biases<Bias>.of(GetParam())({.rows = kRows,
                                     .gates = kGates,
                                     .units = units,
                                     .from = {from.data(), kGates * kFrom},
                                     .from_stride = kFrom,
                                     .bias = bias.data(),
                                     .bias_stride = kBias,
                                     .to = {made.data(), kToRow},
                                     .to_stride = kTo});
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t gate = 0; gate < kGates; ++gate) {
        for (std::int64_t unit = 0; unit < units; ++unit) {
          expected[static_cast<std::size_t>(row * kToRow + gate * kTo + unit)] =
              simd::widen(from[static_cast<std::size_t>((row * kGates + gate) * kFrom + unit)]) +
              simd::widen(bias[static_cast<std::size_t>(gate * kBias + unit)]);
        }
      }
    }
    EXPECT_EQ(made, expected) << units;
  }
};
LOOM_TEST_SIMD_LEVELS(GateSumsTest);

TEST_P(GateSumsTest, AnyNumberOfUnitsAndNothingBeside) {
  for (const std::int64_t units : {1, 7, 15, 16, 33}) {
    expect_sums<float>(units);
    expect_sums<BFloat16>(units);
  }
}

}  // namespace
}  // namespace loom::kernels::recurrent
