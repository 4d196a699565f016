// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/foresight.h"

#include <gtest/gtest.h>

#include "support/fused.h"
#include <array>
#include <cstdint>

namespace loom::fusion {
namespace {

using testing::binary;
using testing::FusedTensor;

class ForesightTest : public ::testing::Test {
 protected:
  FusedTensor a_{{64, 64}, 1}, c_{{64, 64}};
};

TEST_F(ForesightTest, OperandsThatLieAsTheResultDoesAreReadInPlace) {
  const Expression sum = binary(Op::kAdd, c_.access(), a_.access(), a_.access());
  EXPECT_EQ(runs_as_machine_code(sum), compile({.inputs = {{}},
                                                .instructions = {{Op::kAdd, Type::kFloat, 0, 0, 0}},
                                                .outputs = {{1}}}) != nullptr);
}

TEST_F(ForesightTest, OperandsInAnotherOrderAreGatheredFirst) {
  constexpr std::array<std::int64_t, 2> kStrides{1, 64};
  TensorAccess turned = a_.access();
  turned.strides = kStrides;
  turned.contiguous = false;
  EXPECT_FALSE(runs_as_machine_code(binary(Op::kAdd, c_.access(), turned, a_.access())));
}

TEST_F(ForesightTest, ThereIsNoneForWhatNoProgramTakes) {
  FusedTensor other({3, 5}, 1);
  EXPECT_FALSE(runs_as_machine_code(binary(Op::kAdd, c_.access(), other.access(), a_.access())));
}

}  // namespace
}  // namespace loom::fusion
