// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/failing_new.h"
#include <new>
#include <string>

namespace loom {
namespace {

TEST(CheckTest, HoldsSilently) { EXPECT_NO_THROW(LOOM_CHECK(1 + 1 == 2, "never")); }

TEST(CheckTest, ThrowsTheJoinedMessageParts) {
  EXPECT_THAT([] { LOOM_CHECK(false, "api(): expected ", 1, ", got ", 2.5); },
              ::testing::ThrowsMessage<Error>("api(): expected 1, got 2.5"));
}

TEST(CheckTest, AMessageIsWholeOrIsNot) {
  const std::string part(100, 'x');
  std::string text;
  int failures = 0;
  while (text.empty()) {
    try {
      const testing::FailingNew no_memory(failures);
      text = detail::concat("expected ", part, ", got ", 1, part);
    } catch (const std::bad_alloc&) {
      ++failures;
    }
  }
  EXPECT_EQ(text, "expected " + part + ", got 1" + part);
  EXPECT_GT(failures, 1);
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
