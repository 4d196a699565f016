// SPDX-License-Identifier: BSD-3-Clause
// Operators are recorded or refused, whatever the host has no memory for.
#include "loom/fusion/program_set.h"
#include "loom/fusion/recorder.h"

#include <gtest/gtest.h>

#include "support/failing_new.h"
#include "support/fused.h"
#include "support/gate.h"
#include "support/queues.h"
#include <array>
#include <cstddef>
#include <new>

namespace loom::fusion {
namespace {

using testing::binary;
using testing::FailingNew;
using testing::FusedTensor;

class RecorderWithoutHostMemoryTest : public testing::QueueFixture {
 protected:
  /// Records to += a as the next one of a list; false if there was no memory for it.
  bool add_to(FusedTensor& to, FusedTensor& a) {
    Expression sum = binary(Op::kAdd, to.access(), to.access(), a.access());
    sum.set_independent(true);
    try {
      EXPECT_TRUE(record(queue_, sum));
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  static constexpr std::size_t kTensors = 3;
  FusedTensor one_{{3, 100}, 1};
};

TEST_F(RecorderWithoutHostMemoryTest, WhatIsRefusedIsNotComputedAndAllElseIsInOrder) {
  int left = 0;
  for (int spared = 0; left == 0; ++spared) {
    SCOPED_TRACE(spared);
    ASSERT_LT(spared, 1000);
    testing::Gate gate;
    testing::submit_gate(queue_, gate);
    std::array<FusedTensor, kTensors> sums{FusedTensor({3, 100}), FusedTensor({3, 100}),
                                           FusedTensor({3, 100})};
    std::array<float, kTensors> expected{};
    for (int round = 0; round < 3; ++round) {
      const IndependentScope list;
      const FailingNew no_memory(round == 0 ? spared : -1);
      for (std::size_t i = 0; i < kTensors; ++i) {
        if (add_to(sums[i], one_)) expected[i] += 1;
      }
      if (round == 0) left = testing::t_allocations_left;
    }
    // Of two programs of the list, in the other order.
    ASSERT_TRUE(add_to(sums[1], sums[2]));
    ASSERT_TRUE(add_to(sums[0], sums[1]));
    expected[1] += expected[2];
    expected[0] += expected[1];
    gate.open();
    queue_.synchronize();
    for (std::size_t i = 0; i < kTensors; ++i) EXPECT_EQ(sums[i][299], expected[i]) << i;
  }
}

}  // namespace
}  // namespace loom::fusion
