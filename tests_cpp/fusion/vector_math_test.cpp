// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/vector_math.h"

#include "loom/base/options.h"
#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include <gtest/gtest.h>

#include "support/body_data.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace loom::fusion {
namespace {

constexpr auto kOps = static_cast<int>(Op::kMin) + 1;

bool is_function(Op op) {
  return (op >= Op::kExp && op <= Op::kLgamma) || (op >= Op::kPow && op <= Op::kFmod);
}

TEST(VectorMathTest, EveryFunctionIsThereForFloatAndDoubleAndNoOther) {
  for (int i = 0; i < kOps; ++i) {
    const Op op = static_cast<Op>(i);
    const bool expected = vector_level() != SimdLevel::kScalar && is_function(op);
    EXPECT_EQ(vector_function(op, Type::kFloat) != nullptr, expected) << name_of(op);
    EXPECT_EQ(vector_function(op, Type::kDouble) != nullptr, expected) << name_of(op);
    EXPECT_EQ(vector_function(op, Type::kInt32), nullptr) << name_of(op);
  }
}

TEST(VectorMathTest, TheFunctionsAreThoseOfTheKernels) {
#if defined(LOOM_TEST_HAS_SIMD)  // the build has them
  EXPECT_EQ(vector_level(), vectors_of(simd_level()));
#else
  EXPECT_EQ(vector_level(), SimdLevel::kScalar);
#endif
}

/// One operation on 64 elements by the interpreter, which calls the functions of whole vectors.
template <class T>
std::array<T, 64> computed(Op op, Type type, std::array<T, 64> a, std::array<T, 64> b) {
  const DType dtype = type == Type::kFloat ? DType::kFloat : DType::kDouble;
  const Body body{.inputs = {{dtype, false}, {dtype, false}},
                  .instructions = {{op, type, 0, 1}},
                  .outputs = {{2, dtype, false}}};
  std::array<T, 64> result{};
  const Place inputs[] = {{reinterpret_cast<std::byte*>(a.data()), 0},
                          {reinterpret_cast<std::byte*>(b.data()), 0}};
  const Place outputs[] = {{reinterpret_cast<std::byte*>(result.data()), 0}};
  const auto kernel = make_interpreter(body);
  testing::AlignedBytes scratch(kernel->scratch_bytes(64));
  kernel->run({1, 64, inputs, outputs, nullptr, scratch.data()});
  return result;
}

template <class T>
void expect_lanes_alone(Op op, Type type) {
  testing::Dice dice(static_cast<std::uint64_t>(op));
  constexpr std::array<double, 7> kScales = {1, 10, 100, 1e4, 1e6, 1e15, 1e30};
  for (int round = 0; round < 200; ++round) {
    std::array<T, 64> a{}, b{};
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<T>((dice.unit() * 2 - 1) * kScales[dice.below(kScales.size())]);
      b[i] = static_cast<T>((dice.unit() * 2 - 1) * kScales[dice.below(3)]);
    }
    const std::array<T, 64> together = computed(op, type, a, b);
    const std::size_t lane = dice.below(64);
    std::array<T, 64> same_a{}, same_b{};
    same_a.fill(a[lane]);
    same_b.fill(b[lane]);
    const T alone = computed(op, type, same_a, same_b)[0];
    EXPECT_TRUE(std::memcmp(&alone, &together[lane], sizeof(T)) == 0 ||
                (std::isnan(alone) && std::isnan(together[lane])))
        << name_of(op) << " of " << a[lane] << ", " << b[lane] << ": " << alone << " and "
        << together[lane];
  }
}

// Sleef's sin and cos reduced all angles of a vector in the way that the largest one needs.
TEST(VectorMathTest, ALaneDependsOnItsOwnElementAlone) {
  for (int i = 0; i < kOps; ++i) {
    if (!is_function(static_cast<Op>(i))) continue;
    expect_lanes_alone<float>(static_cast<Op>(i), Type::kFloat);
    expect_lanes_alone<double>(static_cast<Op>(i), Type::kDouble);
  }
}

}  // namespace
}  // namespace loom::fusion
