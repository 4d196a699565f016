// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Machine code against the interpreter and the reference, for the tests of the JIT. Thread: any.

#include "loom/fusion/jit/compile.h"
#include "loom/fusion/kernel.h"

#include <gtest/gtest.h>

#include "support/body_data.h"
#include "support/random_body.h"
#include "support/reference_kernel.h"
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

namespace loom::fusion::testing {

/// Bodies compiled for one instruction set; one test for each instruction set that the processor
/// has.
class JitFixture : public ::testing::TestWithParam<SimdLevel> {
 protected:
  void SetUp() override {
    if (GetParam() > jit::widest_level()) GTEST_SKIP() << "the processor has no such instructions";
  }

  static std::shared_ptr<const Kernel> make(const Body& body) {
    return jit::compile_for(GetParam(), body);
  }

  /// Runs the body both ways and compares.
  static void expect_same(const Body& body, RunShape shape, std::uint64_t seed = 1,
                          bool in_place = false) {
    const std::shared_ptr<const Kernel> kernel = make(body);
    ASSERT_NE(kernel, nullptr) << to_string(body);
    expect_same_from(*kernel, body, shape, seed, in_place);
  }

  static void expect_same_from(const Kernel& kernel, const Body& body, RunShape shape,
                               std::uint64_t seed = 1, bool in_place = false) {
    BodyData machine(body, shape, seed, in_place), expected(body, shape, seed, in_place);
    machine.run(kernel);
    expected.run(*make_interpreter(body));
    std::string difference = machine.difference(expected);
    const bool functions =
        std::any_of(body.instructions.begin(), body.instructions.end(),
                    [](const Instruction& i) { return testing::is_function(i.op); });
    if (difference.empty() && !functions) {
      expected.run(ReferenceKernel(body));
      difference = machine.difference(expected);
    }
    EXPECT_EQ(difference, "") << shape.rows << " rows of " << shape.columns << ", seed " << seed
                              << (in_place ? ", in place\n" : "\n") << to_string(body);
  }
};

inline Instruction step(Op op, int a, int b = 0, int c = 0, Type type = Type::kFloat) {
  return {.op = op,
          .type = type,
          .a = static_cast<ValueId>(a),
          .b = static_cast<ValueId>(b),
          .c = static_cast<ValueId>(c)};
}

inline std::string level_name(const ::testing::TestParamInfo<SimdLevel>& info) {
  return info.param == SimdLevel::kAvx2 ? "Avx2" : "Avx512";
}

}  // namespace loom::fusion::testing
