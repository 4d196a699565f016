// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/failure_flow.h"

#include "loom/base/check.h"
#include "loom/device/failed_memory.h"

#include <gtest/gtest.h>

#include "support/fused.h"
#include "support/queues.h"
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace loom::fusion {
namespace {

using testing::binary;
using testing::FusedTensor;

class FailureFlowTest : public testing::QueueFixture {
 protected:
  void SetUp() override {
    ASSERT_TRUE(program_.append(binary(Op::kAdd, spoilt_.access(), failed_.access(), b_.access())));
    ASSERT_TRUE(program_.append(binary(Op::kAdd, good_.access(), b_.access(), b_.access())));
    program_.close();
    const auto error = std::make_exception_ptr(Error("index 7"));
    FailedMemory::mark({access_to(failed_)}, std::make_shared<Failure>(error, "index 7"), queue_);
  }
  void TearDown() override {
    FailedMemory::clear({access_to(failed_), access_to(spoilt_)});
    EXPECT_FALSE(FailedMemory::any());
  }

  static Access access_to(FusedTensor& tensor) {
    return {&tensor[0], 100 * sizeof(float), AccessKind::kReplace};
  }
  [[nodiscard]] std::pair<bool, bool> dead() const {
    return {program_.stores()[0].dead, program_.stores()[1].dead};
  }

  FusedTensor failed_{{100}, 1}, b_{{100}, 2}, spoilt_{{100}}, good_{{100}};
  HostVisible failed_range_{&failed_[0], 100 * sizeof(float)};
  HostVisible spoilt_range_{&spoilt_[0], 100 * sizeof(float)};
  Program program_;
};

const std::pair<bool, bool> kFirst{true, false}, kNone{false, false};

TEST_F(FailureFlowTest, WhatFailsIsLeftOutWhileTheProgramRuns) {
  FailureFlow flow(program_, queue_);
  EXPECT_EQ(dead(), kFirst);
  flow.apply(queue_);
  EXPECT_EQ(dead(), kNone);
  EXPECT_THROW(FailedMemory::check(&spoilt_[0], 4), Error);
  EXPECT_NO_THROW(FailedMemory::check(&good_[0], 4));
}

TEST_F(FailureFlowTest, AProgramIsWholeAgainWhateverHappens) {
  {
    std::vector<FailureFlow> flows;
    flows.emplace_back(program_, queue_);
    EXPECT_EQ(dead(), kFirst);
    flows.reserve(100);
    EXPECT_EQ(dead(), kFirst) << "moved";
  }  // as if the program had thrown
  EXPECT_EQ(dead(), kNone);
}

}  // namespace
}  // namespace loom::fusion
