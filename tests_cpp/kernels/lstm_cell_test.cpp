// SPDX-License-Identifier: BSD-3-Clause
// A step of an LSTM and its gradient against the formulas in double precision.
#include "loom/kernels/recurrent/lstm_cell.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <vector>

namespace loom::kernels::recurrent {
namespace {

constexpr double kAllowed = 4e-7;  // some units in the last place of numbers about 1
constexpr std::int64_t kRows = 3, kHidden = 37;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<float> numbers(std::int64_t count, std::uint32_t seed, float size = 1) {
  auto values = testing::numbers(count, seed);
  for (float& value : values) value *= size;
  return values;
}

class LstmCellTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(LstmCellTest);

TEST_P(LstmCellTest, AStepOfAnyNumberOfUnits) {
  for (const std::int64_t units : {16, 15, 1}) {
    const auto sums = numbers(kRows * kGroupSums, 1, 9), input = numbers(kRows * 4 * kHidden, 2, 9);
    const auto before = numbers(kRows * kHidden, 3);
    std::vector<float> gates = input, after(before.size()), state(before.size()),
                       output(static_cast<std::size_t>(kRows * 50));
    lstm_step.of(GetParam())({.rows = kRows,
                              .units = units,
                              .hidden = kHidden,
                              .sums = sums.data(),
                              .gates = gates.data(),
                              .cell_before = before.data(),
                              .cell_after = after.data(),
                              .state = state.data(),
                              .output = output.data(),
                              .output_stride = 50,
                              .keeps = true});
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t unit = 0; unit < units; ++unit) {
        const auto gate = [&](std::int64_t index) {
          return double{input[(row * 4 + index) * kHidden + unit]} +
                 double{sums[row * kGroupSums + index * kGroup + unit]};
        };
        const double in = sigmoid(gate(0)), forget = sigmoid(gate(1));
        const double cell = forget * before[row * kHidden + unit] + in * std::tanh(gate(2));
        // The sum of the gate itself is rounded to float.
        EXPECT_NEAR(gates[row * 4 * kHidden + unit], in, 2 * kAllowed);
        EXPECT_NEAR(after[row * kHidden + unit], cell, 4 * kAllowed);
        EXPECT_NEAR(state[row * kHidden + unit], sigmoid(gate(3)) * std::tanh(cell), 4 * kAllowed);
        EXPECT_EQ(state[row * kHidden + unit], output[row * 50 + unit]);
      }
      EXPECT_EQ(after[row * kHidden + units], 0) << "beyond the units";
    }
  }
}

TEST_P(LstmCellTest, AStepInPlaceThatKeepsNothing) {
  const auto sums = numbers(kRows * kGroupSums, 1), input = numbers(kRows * 4 * kHidden, 2);
  const auto before = numbers(kRows * kHidden, 3);
  const auto step = [&](bool keeps, std::vector<float>& gates, std::vector<float>& cell) {
    std::vector<float> state(before.size());
    lstm_step.of(GetParam())({.rows = kRows,
                              .units = kGroup,
                              .hidden = kHidden,
                              .sums = sums.data(),
                              .gates = gates.data(),
                              .cell_before = keeps ? before.data() : cell.data(),
                              .cell_after = cell.data(),
                              .state = state.data(),
                              .output = state.data(),
                              .output_stride = kHidden,
                              .keeps = keeps});
    return state;
  };
  std::vector<float> kept = input, gates = input, apart = before, cell = before;
  EXPECT_EQ(step(true, kept, apart), step(false, gates, cell));
  EXPECT_EQ(cell, apart);
  EXPECT_EQ(gates, input);
}

TEST_P(LstmCellTest, TheGradientOfAStep) {
  constexpr std::int64_t kSumsStride = 40;
  auto gates = numbers(kRows * 4 * kHidden, 4);
  for (float& gate : gates) gate = std::abs(gate);
  const auto before = numbers(kRows * kHidden, 5), after = numbers(kRows * kHidden, 6);
  const auto sums = numbers(kRows * kSumsStride, 7), coming = numbers(kRows * kHidden, 8),
             output = numbers(kRows * kSumsStride, 9);
  std::vector<float> cell_grad = coming, gates_grad(gates.size());
  lstm_step_gradient.of(GetParam())({.rows = kRows,
                                     .units = kHidden,
                                     .hidden = kHidden,
                                     .sums = sums.data(),
                                     .sums_stride = kSumsStride,
                                     .output_grad = output.data(),
                                     .output_grad_stride = kSumsStride,
                                     .gates = gates.data(),
                                     .cell_before = before.data(),
                                     .cell_after = after.data(),
                                     .cell_grad = cell_grad.data(),
                                     .gates_grad = gates_grad.data()});
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t unit = 0; unit < kHidden; ++unit) {
      const auto at = [&](const std::vector<float>& values, std::int64_t index) {
        return double{values[(row * 4 + index) * kHidden + unit]};
      };
      const double in = at(gates, 0), forget = at(gates, 1), candidate = at(gates, 2),
                   out = at(gates, 3),
                   grad = double{sums[row * kSumsStride + unit]} + output[row * kSumsStride + unit];
      const double squashed = std::tanh(double{after[row * kHidden + unit]});
      const double through = coming[row * kHidden + unit] + grad * out * (1 - squashed * squashed);
      EXPECT_NEAR(at(gates_grad, 0), through * candidate * in * (1 - in), 2 * kAllowed);
      EXPECT_NEAR(at(gates_grad, 1), through * before[row * kHidden + unit] * forget * (1 - forget),
                  2 * kAllowed);
      EXPECT_NEAR(at(gates_grad, 2), through * in * (1 - candidate * candidate), 2 * kAllowed);
      EXPECT_NEAR(at(gates_grad, 3), grad * squashed * out * (1 - out), 2 * kAllowed);
      EXPECT_NEAR(cell_grad[row * kHidden + unit], through * forget, 2 * kAllowed);
    }
  }
}

}  // namespace
}  // namespace loom::kernels::recurrent
