// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace loom {
namespace {

TEST(CheckTest, HoldsSilently) { EXPECT_NO_THROW(LOOM_CHECK(1 + 1 == 2, "never")); }

TEST(CheckTest, ThrowsTheJoinedMessageParts) {
  EXPECT_THAT([] { LOOM_CHECK(false, "api(): expected ", 1, ", got ", 2.5); },
              ::testing::ThrowsMessage<Error>("api(): expected 1, got 2.5"));
}

TEST(CheckTest, EvaluatesTheMessageOnlyOnFailure) {
  int evaluated = 0;
  LOOM_CHECK(true, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST(CheckDeathTest, AssertNamesFileConditionAndMessage) {
  EXPECT_DEATH(LOOM_ASSERT(2 < 1, "the order is lost"),
               "loom: internal error at .*check_test.cpp:[0-9]+: 2 < 1: the order is lost");
}

}  // namespace
}  // namespace loom
