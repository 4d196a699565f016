// SPDX-License-Identifier: BSD-3-Clause
// Every half and bfloat16 there and back, and what lies between two of them.
#include "loom/simd/half.h"

#include <gtest/gtest.h>

#include "support/flushing.h"
#include <cmath>
#include <cstdint>
#include <limits>

namespace loom::simd {
namespace {

template <class T>
T rounded(float a) {
  T to{};
  round_to(to, a);
  return to;
}

template <class T>
class HalvesTest : public ::testing::Test {};
using Types = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(HalvesTest, Types);

template <class T>
constexpr std::uint16_t kInfinity = 0x7C00;
template <>
constexpr std::uint16_t kInfinity<BFloat16> = 0x7F80;

TYPED_TEST(HalvesTest, EachIsItselfAgain) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const TypeParam number{static_cast<std::uint16_t>(bits)};
    const float value = widen(number);
    if ((bits & 0x7FFF) > kInfinity<TypeParam>) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(widen(rounded<TypeParam>(value)))) << bits;
    } else {
      EXPECT_EQ(rounded<TypeParam>(value).bits, bits);
      EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
    }
  }
}

TEST(HalfTest, KnownNumbers) {
  EXPECT_EQ(widen(Half{0x3C00}), 1);
  EXPECT_EQ(widen(Half{0xC500}), -5);
  EXPECT_EQ(widen(Half{0x0001}), 0x1p-24F);
  EXPECT_EQ(widen(Half{0x0400}), 0x1p-14F);
  EXPECT_EQ(widen(Half{0x7BFF}), 65504);
  EXPECT_EQ(widen(BFloat16{0x3F80}), 1);
  EXPECT_EQ(widen(BFloat16{0xC0A0}), -5);
}

TEST(HalfTest, DenormalHalvesAreNoDenormalFloats) {
  const testing::Flushing flushing;
  for (std::uint16_t bits = 0; bits < 0x400; ++bits) {
    EXPECT_EQ(widen(Half{bits}), static_cast<float>(bits) * 0x1p-24F);
    EXPECT_EQ(rounded<Half>(widen(Half{bits})).bits, bits);
  }
}

TYPED_TEST(HalvesTest, BetweenTwoTheNearerIsTaken) {
  for (std::uint32_t bits = 0; bits < kInfinity<TypeParam> - 1U; ++bits) {
    const TypeParam below{static_cast<std::uint16_t>(bits)};
    const TypeParam above{static_cast<std::uint16_t>(bits + 1)};
    const float middle = widen(below) / 2 + widen(above) / 2;
    if (middle == 0) continue;  // below the smallest float
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(rounded<TypeParam>(middle).bits, even) << bits;
    ASSERT_EQ(rounded<TypeParam>(std::nextafter(middle, 0.0F)).bits, bits);
    const float larger = std::nextafter(middle, std::numeric_limits<float>::max());
    ASSERT_EQ(rounded<TypeParam>(larger).bits, bits + 1);
  }
}

TYPED_TEST(HalvesTest, BeyondTheLargestIsInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rounded<TypeParam>(infinity).bits, kInfinity<TypeParam>);
  EXPECT_EQ(rounded<TypeParam>(-infinity).bits, kInfinity<TypeParam> | 0x8000);
  EXPECT_EQ(rounded<TypeParam>(std::numeric_limits<float>::max()).bits, kInfinity<TypeParam>);
}

}  // namespace
}  // namespace loom::simd
