// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tests of what a process does as a whole (its environment, its exit, its forks) run their body in
// a fresh child process, as gtest's death tests do:
//
//   EXPECT_EXIT(finish([] { setenv(...); EXPECT_EQ(...); }), ExitedWithCode(0), "");

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace loom::testing {

/// Runs `body` and exits as a program does: 0 if it neither threw nor failed an expectation.
template <class Body>
[[noreturn]] void finish(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the child threw: %s\n", error.what());
    std::exit(2);
  }
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

/// A fixture whose children are started anew rather than forked from this process: nothing of loom
/// has been used in them.
class ChildTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

}  // namespace loom::testing
