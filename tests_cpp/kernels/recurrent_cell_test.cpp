// SPDX-License-Identifier: BSD-3-Clause
// Steps of recurrent cells and their gradients against the formulas in double precision.
#include "loom/kernels/recurrent/cell.h"
#include "loom/kernels/recurrent/row_product.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace loom::kernels::recurrent {
namespace {

// Units in the last place of numbers about 1.
constexpr double kAllowed = 4 * 0x1p-23;
constexpr std::int64_t kRows = 3, kHidden = 37, kSumsGate = 41, kSumsRow = 4 * kSumsGate + 2;
constexpr std::int64_t kStateRow = 50;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<float> numbers(std::int64_t count, std::uint32_t seed, float size = 1) {
  auto values = testing::numbers(count, seed);
  for (float& value : values) value *= size;
  return values;
}

/// Operands of a step of a cell, of any of them.
struct Operands {
  std::vector<float> sums = numbers(kRows * kSumsRow, 1, 9);
  std::vector<float> input = numbers(kRows * 4 * kHidden, 2, 9);
  std::vector<float> before = numbers(kRows * kHidden, 3);
  std::vector<float> input_bias = numbers(4 * kHidden, 4), hidden_bias = numbers(4 * kHidden, 5);
  std::vector<float> gates = std::vector<float>(input.size());
  std::vector<float> kept = std::vector<float>(before.size());
  std::vector<float> state = std::vector<float>(static_cast<std::size_t>(kRows * kStateRow));

  CellStep step(Cell cell, std::int64_t units) {
    const std::int64_t width = gate_count(cell) * kHidden;
    return {.cell = cell,
            .rows = kRows,
            .units = units,
            .gate_stride = kHidden,
            .sums = {sums.data(), kSumsRow},
            .sums_gate_stride = kSumsGate,
            .input_bias = input_bias.data(),
            .hidden_bias = hidden_bias.data(),
            .input = {input.data(), width},
            .gates = {gates.data(), width},
            .before = {before.data(), kHidden},
            .kept = {kept.data(), kHidden},
            .state = {state.data(), kStateRow}};
  }
};

/// A step of one unit.
struct Expected {
  std::array<double, 4> gates{};
  double kept = 0, state = 0;

  Expected(Cell cell, const Operands& o, std::int64_t row, std::int64_t unit, bool biased = true) {
    const std::int64_t count = gate_count(cell);
    const auto input = [&](std::int64_t gate) {
      return double{o.input[(row * count + gate) * kHidden + unit]} +
             (biased ? o.input_bias[gate * kHidden + unit] : 0.0);
    };
    const auto hidden = [&](std::int64_t gate) {
      return double{o.sums[row * kSumsRow + gate * kSumsGate + unit]} +
             (biased ? o.hidden_bias[gate * kHidden + unit] : 0.0);
    };
    const auto sum = [&](std::int64_t gate) { return input(gate) + hidden(gate); };
    const double before = o.before[row * kHidden + unit];
    switch (cell) {
      case Cell::kLstm:
        gates = {sigmoid(sum(0)), sigmoid(sum(1)), std::tanh(sum(2)), sigmoid(sum(3))};
        kept = gates[1] * before + gates[0] * gates[2];
        state = gates[3] * std::tanh(kept);
        break;
      case Cell::kGru:
        gates = {sigmoid(sum(0)), sigmoid(sum(1))};
        kept = hidden(2);
        gates[2] = std::tanh(input(2) + gates[0] * kept);
        state = (1 - gates[1]) * gates[2] + gates[1] * before;
        break;
      case Cell::kTanh:
        state = std::tanh(sum(0));
        break;
      case Cell::kRelu:
        state = std::max(sum(0), 0.0);
        break;
    }
  }
};

class RecurrentCellTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(RecurrentCellTest);

TEST_P(RecurrentCellTest, AStepOfAnyNumberOfUnits) {
  for (const Cell cell : {Cell::kLstm, Cell::kGru, Cell::kTanh, Cell::kRelu}) {
    for (const std::int64_t units : {16, 15, 1}) {
      Operands o;
      cell_step.of(GetParam())(o.step(cell, units));
      const std::int64_t count = gate_count(cell);
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t unit = 0; unit < units; ++unit) {
          const Expected expected(cell, o, row, unit);
          // Sums of up to 20 are rounded to float.
          EXPECT_NEAR(o.state[row * kStateRow + unit], expected.state, 8 * kAllowed);
          if (count == 1) continue;
          EXPECT_NEAR(o.kept[row * kHidden + unit], expected.kept, 4 * kAllowed);
          for (std::int64_t gate = 0; gate < count; ++gate) {
            EXPECT_NEAR(o.gates[(row * count + gate) * kHidden + unit], expected.gates[gate],
                        4 * kAllowed);
          }
        }
        EXPECT_EQ(o.state[row * kStateRow + units], 0) << "beyond the units";
      }
    }
  }
}

TEST_P(RecurrentCellTest, AStepWithoutBiasesThatKeepsNothingInPlace) {
  for (const Cell cell : {Cell::kLstm, Cell::kGru}) {
    Operands o, untouched;
    CellStep step = o.step(cell, kHidden);
    step.input_bias = step.hidden_bias = nullptr;
    step.gates = {};
    step.kept = {};
    if (cell == Cell::kLstm) step.kept = {o.before.data(), kHidden};
    cell_step.of(GetParam())(step);
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t unit = 0; unit < kHidden; ++unit) {
        const Expected expected(cell, untouched, row, unit, /*biased=*/false);
        EXPECT_NEAR(o.state[row * kStateRow + unit], expected.state, 8 * kAllowed);
        if (cell != Cell::kLstm) continue;
        EXPECT_NEAR(o.before[row * kHidden + unit], expected.kept, 4 * kAllowed);
      }
    }
    EXPECT_EQ(o.input, untouched.input);
    EXPECT_EQ(o.gates, untouched.gates);
  }
}

TEST_P(RecurrentCellTest, NumbersThatAreNone) {
  for (const Cell cell : {Cell::kLstm, Cell::kGru, Cell::kTanh, Cell::kRelu}) {
    Operands o;
    o.input[0] = std::nanf("");
    cell_step.of(GetParam())(o.step(cell, kHidden));
    EXPECT_TRUE(std::isnan(o.state[0]));
    EXPECT_FALSE(std::isnan(o.state[1]));
  }
}

/// The gradient of a step through all that it has, of one unit.
struct ExpectedGradient {
  std::array<double, 4> input{};
  double hidden_part = 0, carried = 0;

  ExpectedGradient(Cell cell, const std::array<double, 4>& gates, double grad, double coming,
                   double before, double kept) {
    switch (cell) {
      case Cell::kLstm: {
        const auto [in, forget, candidate, out] = gates;
        const double squashed = std::tanh(kept);
        const double through = coming + grad * out * (1 - squashed * squashed);
        input = {through * candidate * in * (1 - in), through * before * forget * (1 - forget),
                 through * in * (1 - candidate * candidate), grad * squashed * out * (1 - out)};
        carried = through * forget;
        break;
      }
      case Cell::kGru: {
        const auto [reset, update, candidate, none] = gates;
        const double all = grad + coming;
        input[2] = all * (1 - update) * (1 - candidate * candidate);
        input[1] = all * (before - candidate) * update * (1 - update);
        input[0] = input[2] * kept * reset * (1 - reset);
        hidden_part = input[2] * reset;
        carried = all * update;
        break;
      }
      case Cell::kTanh:
        input[0] = grad * (1 - gates[0] * gates[0]);
        break;
      case Cell::kRelu:
        input[0] = gates[0] > 0 ? grad : 0;
        break;
    }
  }
};

TEST_P(RecurrentCellTest, TheGradientOfAStep) {
  constexpr std::int64_t kAfterRow = 40;
  for (const Cell cell : {Cell::kLstm, Cell::kGru, Cell::kTanh, Cell::kRelu}) {
    const std::int64_t count = gate_count(cell), width = count * kHidden;
    auto gates = numbers(kRows * width, 4);
    if (count > 1) {
      for (float& gate : gates) gate = std::abs(gate);
    }
    const auto before = numbers(kRows * kHidden, 5), kept = numbers(kRows * kHidden, 6),
               after = numbers(kRows * kAfterRow, 7), coming = numbers(kRows * kHidden, 8),
               output = numbers(kRows * kAfterRow, 9);
    std::vector<float> carried = coming, input_grad(gates.size()), hidden_grad(gates.size());
    cell_gradient.of(GetParam())({.cell = cell,
                                  .rows = kRows,
                                  .units = kHidden,
                                  .gate_stride = kHidden,
                                  .from_after = {after.data(), kAfterRow},
                                  .output_grad = {output.data(), kAfterRow},
                                  .gates = {gates.data(), width},
                                  .before = {before.data(), kHidden},
                                  .kept = {kept.data(), kHidden},
                                  .carried = {carried.data(), kHidden},
                                  .input_grad = {input_grad.data(), width},
                                  .hidden_grad = {hidden_grad.data(), width}});
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t unit = 0; unit < kHidden; ++unit) {
        const auto at = [&](std::int64_t gate) { return (row * count + gate) * kHidden + unit; };
        std::array<double, 4> activated{};
        for (std::int64_t gate = 0; gate < count; ++gate) activated[gate] = gates[at(gate)];
        const std::int64_t place = row * kHidden + unit;
        const double grad = double{after[row * kAfterRow + unit]} + output[row * kAfterRow + unit];
        const ExpectedGradient expected(cell, activated, grad, coming[place], before[place],
                                        kept[place]);
        for (std::int64_t gate = 0; gate < count; ++gate) {
          EXPECT_NEAR(input_grad[at(gate)], expected.input[gate], 2 * kAllowed);
        }
        if (count == 1) continue;
        EXPECT_NEAR(carried[place], expected.carried, 2 * kAllowed);
        if (cell != Cell::kGru) continue;
        EXPECT_NEAR(hidden_grad[at(0)], expected.input[0], 2 * kAllowed);
        EXPECT_NEAR(hidden_grad[at(1)], expected.input[1], 2 * kAllowed);
        EXPECT_NEAR(hidden_grad[at(2)], expected.hidden_part, 2 * kAllowed);
      }
    }
  }
}

TEST_P(RecurrentCellTest, TheLastStepHasNoneAfterIt) {
  const auto state = numbers(kHidden, 1);
  std::vector<float> grad(kHidden, 7.F);
  cell_gradient.of(GetParam())({.cell = Cell::kTanh,
                                .rows = 1,
                                .units = kHidden,
                                .gate_stride = kHidden,
                                .gates = {state.data(), kHidden},
                                .input_grad = {grad.data(), kHidden}});
  EXPECT_EQ(grad, std::vector<float>(kHidden, 0.F));
}

class RowProductTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(RowProductTest);

TEST_P(RowProductTest, IsTheSumOverThePanelsRows) {
  for (const std::int64_t columns : {48, 64}) {
    for (const std::int64_t inner : {1, 2, 7, 37, 256}) {
      const auto row = numbers(inner, 1), panel = numbers(inner * columns, 2);
      std::vector<float> made(static_cast<std::size_t>(columns));
      multiply_row.of(GetParam())(row.data(), inner, panel.data(), columns, made.data());
      for (std::int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) sum += double{row[k]} * panel[k * columns + j];
        EXPECT_NEAR(made[j], sum, 0x1p-24 * static_cast<double>(inner)) << inner << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace loom::kernels::recurrent
