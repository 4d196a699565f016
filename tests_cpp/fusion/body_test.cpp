// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/body.h"

#include "loom/base/check.h"

#include <gtest/gtest.h>

#include "support/random_body.h"
#include <cstdint>
#include <set>

namespace loom::fusion {
namespace {

Body squares_of_differences() {  // sum((x - mean)^2) with the mean's reciprocal count as a
                                 // parameter
  return {.inputs = {{DType::kFloat}},
          .params = {Type::kFloat},
          .instructions = {{Op::kSum, Type::kFloat, 0},
                           {Op::kMul, Type::kFloat, 2, 1},
                           {Op::kSub, Type::kFloat, 0, 3},
                           {Op::kMul, Type::kFloat, 4, 4},
                           {Op::kSum, Type::kFloat, 5}},
          .outputs = {{6, DType::kFloat, true}}};
}

TEST(BodyTest, AReductionBeginsAPhase) {
  const Analysis analysis = analyse(squares_of_differences());
  EXPECT_EQ(analysis.phases, 3);
  EXPECT_EQ(analysis.values[2].phase, 1);
  EXPECT_TRUE(analysis.values[2].uniform);
  EXPECT_EQ(analysis.values[4].phase, 1);
  EXPECT_FALSE(analysis.values[4].uniform);
  EXPECT_EQ(analysis.values[6].phase, 2);
  EXPECT_EQ(analysis.values[0].last_use, 1);
}

TEST(BodyTest, WhatIsComputedFromUniformValuesIsUniform) {
  const Body body{.inputs = {{DType::kFloat, true}, {DType::kFloat}},
                  .params = {Type::kFloat},
                  .instructions = {{Op::kAdd, Type::kFloat, 0, 2}, {Op::kAdd, Type::kFloat, 3, 1}},
                  .outputs = {{4, DType::kFloat}}};
  const Analysis analysis = analyse(body);
  EXPECT_TRUE(analysis.values[3].uniform);
  EXPECT_FALSE(analysis.values[4].uniform);
}

TEST(BodyTest, RefusesWhatBreaksARule) {
  Body body = squares_of_differences();
  EXPECT_NO_THROW(check_valid(body));
  body.instructions[1].a = 3;  // itself
  EXPECT_THROW(check_valid(body), Error);
  body = squares_of_differences();
  body.instructions[1].type = Type::kInt32;
  EXPECT_THROW(check_valid(body), Error);
  body = squares_of_differences();
  body.instructions[0] = {Op::kAnd, Type::kFloat, 0, 0};
  EXPECT_THROW(check_valid(body), Error);
  body = squares_of_differences();
  body.outputs[0] = {5, DType::kFloat, true};  // many elements
  EXPECT_THROW(check_valid(body), Error);
  body = squares_of_differences();
  body.outputs[0].dtype = DType::kDouble;
  EXPECT_THROW(check_valid(body), Error);
}

TEST(BodyTest, HashesTellBodiesApart) {
  std::set<std::size_t> hashes;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Body body = testing::random_body(seed, {.instructions = 40});
    EXPECT_EQ(hash_of(body), hash_of(testing::random_body(seed, {.instructions = 40})));
    hashes.insert(hash_of(body));
    body.streaming = true;
    hashes.insert(hash_of(body));
  }
  EXPECT_EQ(hashes.size(), 1000U);
}

TEST(BodyTest, TextSaysOneInstructionALine) {
  EXPECT_EQ(to_string({.inputs = {{DType::kFloat}, {DType::kBool}},
                       .instructions = {{Op::kSelect, Type::kFloat, 1, 0, 0}}}),
            "v2 = select.float v1 v0 v0\n");
}

TEST(BodyTest, RandomBodiesAreValid) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    EXPECT_NO_THROW(check_valid(testing::random_body(seed)));
  }
}

}  // namespace
}  // namespace loom::fusion
