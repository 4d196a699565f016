// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/fill_kernel.h"

#include <gtest/gtest.h>

#include "support/random_body.h"
#include "support/reference_kernel.h"

namespace loom::fusion::testing {
namespace {

/// A body whose inputs are numbers of rows and that nothing is summed in.
Body random_fill(std::uint64_t seed) {
  Body body = random_body(seed, {.instructions = 8, .reductions = 0, .functions = false});
  for (Input& input : body.inputs) input.uniform = true;
  body.streaming = seed % 3 == 0;
  return body;
}

TEST(FillKernelTest, IsTheReference) {
  int filled = 0;
  for (std::uint64_t seed = 0; seed < 2000 && !::testing::Test::HasFailure(); ++seed) {
    const Body body = random_fill(seed);
    check_valid(body);
    if (!fills(body)) continue;
    ++filled;
    Dice dice(seed);
    const RunShape shape{static_cast<std::int64_t>(dice.below(5)),
                         static_cast<std::int64_t>(dice.below(400)),
                         static_cast<std::int64_t>(dice.below(2))};
    BodyData data(body, shape, seed), expected(body, shape, seed);
    data.run(*make_fill_kernel(body));
    expected.run(ReferenceKernel(body));
    EXPECT_EQ(data.difference(expected), "")
        << "seed " << seed << ", " << shape.rows << "x" << shape.columns << "\n"
        << to_string(body);
  }
  EXPECT_GT(filled, 500);
}

TEST(FillKernelTest, IsForNarrowElementsThatAreAlikeInARow) {
  const Body ones{.params = {Type::kMask}, .outputs = {{0, DType::kBool}}};
  EXPECT_TRUE(fills(ones));
  Body wide = ones;
  wide.outputs[0].dtype = DType::kFloat;
  EXPECT_FALSE(fills(wide));
  Body elements = ones;
  elements.inputs = {{DType::kBool, false}};
  EXPECT_FALSE(fills(elements));
  Body sum{.inputs = {{DType::kHalf, true}},
           .instructions = {{.op = Op::kSum, .type = Type::kFloat, .a = 0}},
           .outputs = {{1, DType::kHalf}}};
  EXPECT_FALSE(fills(sum));
}

}  // namespace
}  // namespace loom::fusion::testing
