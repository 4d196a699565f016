// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A program and its plan, for tests of what becomes of operators that are appended. Thread: any.

#include "loom/fusion/plan.h"
#include "loom/fusion/program.h"

#include <gtest/gtest.h>

namespace loom::testing {

class ProgramFixture : public ::testing::Test {
 protected:
  ProgramFixture() { program_.reset(); }

  const fusion::Body& close() {
    program_.close();
    plan_.make(program_);
    return plan_.body();
  }

  fusion::Program program_;
  fusion::Plan plan_;
};

}  // namespace loom::testing
