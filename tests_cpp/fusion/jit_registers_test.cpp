// SPDX-License-Identifier: BSD-3-Clause
// Bodies that want more registers than there are, and functions in line: the interpreter's bits.
#include "loom/fusion/jit/compile.h"
#include "loom/fusion/kernel.h"

#include <gtest/gtest.h>

#include "support/body_data.h"
#include "support/jit_fixture.h"
#include "support/random_body.h"
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace loom::fusion {
namespace {

using testing::step;
class JitRegistersTest : public testing::JitFixture {};

/// More values at once than there are registers; `middle` comes while all are alive.
Body crowded_body(Type type, Op middle) {
  Body body;
  body.inputs = {{.dtype = type == Type::kFloat ? DType::kFloat : DType::kDouble}};
  body.params = {type};
  int last = 0;
  const auto add = [&](Op op, int a, int b) {
    body.instructions.push_back(step(op, a, b, 0, type));
    last = static_cast<int>(body.value_count()) - 1;
    return last;
  };
  std::vector<int> alive;
  for (int i = 0; i < 45; ++i) alive.push_back(add(i % 2 == 0 ? Op::kAdd : Op::kMul, last, 1));
  add(middle, last, 1);
  for (const int value : alive) add(Op::kSub, last, value);
  body.outputs = {{.value = static_cast<ValueId>(last), .dtype = body.inputs[0].dtype}};
  return body;
}

TEST_P(JitRegistersTest, MoreValuesThanRegisters) {
  for (const Type type : {Type::kFloat, Type::kDouble}) {
    for (const std::int64_t columns : {1, 16, 100}) {
      expect_same(crowded_body(type, Op::kMul), {.rows = 2, .columns = columns});
    }
  }
}

TEST_P(JitRegistersTest, MoreMasksThanRegisters) {
  Body body;
  body.inputs = {{}};
  for (int i = 0; i < 16; ++i) body.params.push_back(Type::kFloat);
  for (int i = 0; i < 16; ++i) body.instructions.push_back(step(Op::kLt, 0, 1 + i));
  for (int i = 0; i < 16; ++i) {
    const int chosen = i == 0 ? 0 : 32 + i;
    body.instructions.push_back(step(Op::kSelect, 17 + i, chosen, 1 + (i * 7) % 16));
  }
  body.outputs = {{.value = 48}, {.value = 20, .dtype = DType::kBool}};
  expect_same(body, {.rows = 2, .columns = 100});
}

/// What `kernel` stores of `x` as bfloat16.
std::vector<std::uint16_t> stored(const Kernel& kernel, std::vector<float>& x) {
  std::vector<std::uint16_t> result(x.size());
  const Place inputs[] = {{reinterpret_cast<std::byte*>(x.data()), 0}};
  const Place outputs[] = {{reinterpret_cast<std::byte*>(result.data()), 0}};
  const auto columns = static_cast<std::int64_t>(x.size());
  testing::AlignedBytes scratch(kernel.scratch_bytes(columns));
  kernel.run({1, columns, inputs, outputs, nullptr, scratch.data()});
  return result;
}

// Of each sign and exponent, at and beside the middle between two neighbours: numbers that are not
// normal, infinities and NaNs too, alone in their vectors and beside others.
TEST_P(JitRegistersTest, BFloat16IsRoundedToNearestEven) {
  const Body body{.inputs = {{}}, .outputs = {{.value = 0, .dtype = DType::kBFloat16}}};
  const auto kernel = make(body), expected = make_interpreter(body);
  ASSERT_NE(kernel, nullptr);
  std::vector<float> x;
  for (std::uint32_t high = 0; high <= 0xFFFF; ++high) {
    for (const std::uint32_t low : {0x0U, 0x1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  EXPECT_EQ(stored(*kernel, x), stored(*expected, x));
  for (std::size_t i = 0; i < x.size(); i += 37) {
    if (i % 16 != 0) x[i - i % 16 + 15] = 0x1p-140F;
  }
  EXPECT_EQ(stored(*kernel, x), stored(*expected, x));
}

TEST_P(JitRegistersTest, ValuesOutliveCalls) {
  if (GetParam() != vector_level())
    GTEST_SKIP() << "functions are for the widest instructions only";
  for (const Type type : {Type::kFloat, Type::kDouble}) {
    for (const Op op : {Op::kExp, Op::kAtan2}) {
      expect_same(crowded_body(type, op), {.rows = 2, .columns = 100});
    }
  }
}

constexpr Op kFormulas[] = {Op::kExp,   Op::kExp2, Op::kExpm1, Op::kLog,   Op::kLog2,
                            Op::kLog1p, Op::kTanh, Op::kErf,   Op::kHypot, Op::kNormalCdf};

// Functions that are made of others in line: alone, beside 64-bit values, which halve the lanes, of
// one value a row, and more of them than a body has room for.
TEST_P(JitRegistersTest, FormulasGiveTheBitsOfTheirFunctions) {
  if (GetParam() != vector_level())
    GTEST_SKIP() << "functions are for the widest instructions only";
  for (const Op op : kFormulas) {
    const Body alone{.inputs = {{}, {.uniform = true}},
                     .instructions = {step(op, 0, 1), step(op, 1, 0), step(op, 1, 1)},
                     .outputs = {{.value = 2},
                                 {.value = 3, .uniform = op != Op::kHypot},
                                 {.value = 4, .uniform = true}}};
    expect_same(alone, {.rows = 3, .columns = 1000});
    const Body wide{.inputs = {{}, {.dtype = DType::kDouble}},
                    .instructions = {step(op, 0, 0), step(Op::kToDouble, 2),
                                     step(Op::kAdd, 1, 3, 0, Type::kDouble)},
                    .outputs = {{.value = 4, .dtype = DType::kDouble}}};
    expect_same(wide, {.rows = 2, .columns = 333});
  }
}

TEST_P(JitRegistersTest, MoreFormulasThanThereIsRoomFor) {
  if (GetParam() != vector_level())
    GTEST_SKIP() << "functions are for the widest instructions only";
  for (const int count : {5, 12, 13, 14, 40}) {
    Body body{.inputs = {{}}};
    for (int i = 0; i < count; ++i) {
      body.instructions.push_back(
          step(kFormulas[static_cast<std::size_t>(i) % std::size(kFormulas)], i, 0));
    }
    body.outputs = {{.value = static_cast<ValueId>(count)}};
    expect_same(body, {.rows = 2, .columns = 200});
  }
}

TEST_P(JitRegistersTest, RandomBodiesWithFunctions) {
  if (GetParam() != vector_level())
    GTEST_SKIP() << "functions are for the widest instructions only";
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Body body = testing::random_body(seed, {.inputs = 4, .all_types = seed % 2 == 0});
    const auto kernel = make(body);
    if (kernel == nullptr) continue;  // a function that there is none of
    const auto columns = static_cast<std::int64_t>(seed * 7 % 200);
    expect_same_from(*kernel, body, {.rows = 2, .columns = columns, .padding = 1}, seed);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, JitRegistersTest,
                         ::testing::Values(SimdLevel::kAvx2, SimdLevel::kAvx512),
                         testing::level_name);

}  // namespace
}  // namespace loom::fusion
