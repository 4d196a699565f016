// SPDX-License-Identifier: BSD-3-Clause
// Rows to float32 and back are exact, or rounded as single numbers are.
#include "loom/kernels/copy/convert_row.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <bit>
#include <cmath>
#include <vector>

namespace loom::kernels {
namespace {

using simd::BFloat16;

class ConvertRowTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(ConvertRowTest);

TEST_P(ConvertRowTest, EveryBFloat16IsWidened) {
  std::vector<BFloat16> from(1 << 16);
  for (std::size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> to(from.size());
  widen_row<BFloat16>.of(GetParam())(to.data(), from.data(), 1 << 16);
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(to[i]), i << 16);
  }
}

TEST_P(ConvertRowTest, FloatsAreRoundedAsSingleOnesAre) {
  std::vector<float> from;
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
    for (const std::uint32_t rest : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      from.push_back(std::bit_cast<float>(bits << 16 | rest));
    }
  }
  std::vector<BFloat16> to(from.size());
  round_row<BFloat16>.of(GetParam())(to.data(), from.data(), static_cast<int>(from.size()));
  for (std::size_t i = 0; i < from.size(); ++i) {
    BFloat16 expected{};
    simd::round_to(expected, from[i]);
    ASSERT_EQ(to[i].bits, expected.bits) << std::hexfloat << from[i];
  }
}

TEST_P(ConvertRowTest, NothingBesideTheRowIsTouched) {
  for (const std::int64_t length : testing::kRowLengths) {
    const auto from = testing::elements<BFloat16>(length, 1);
    std::vector<float> wide(from.size() + 1, 7);
    widen_row<BFloat16>.of(GetParam())(wide.data(), from.data(), length);
    EXPECT_EQ(wide.back(), 7);
    std::vector<BFloat16> narrow(from.size() + 1, BFloat16{7});
    round_row<BFloat16>.of(GetParam())(narrow.data(), wide.data(), length);
    EXPECT_EQ(narrow.back().bits, 7);
    std::vector<float> copy(wide.size(), 9);
    round_row<float>.of(GetParam())(copy.data(), wide.data(), length);
    EXPECT_EQ(copy.back(), 9);
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(narrow[i].bits, from[i].bits);
      EXPECT_EQ(copy[i], wide[i]);
    }
  }
}

TEST_P(ConvertRowTest, HalfsAreWidenedScaledAndRoundedAsSingleOnesAre) {
  for (const std::int64_t length : testing::kRowLengths) {
    const auto count = static_cast<std::size_t>(length);
    const auto factors = testing::elements<simd::Half>(length, 1);
    std::vector<float> wide(count);
    widen_row<simd::Half>.of(GetParam())(wide.data(), factors.data(), length);
    std::vector<simd::Half> same(count), squares(count);
    round_row<simd::Half>.of(GetParam())(same.data(), wide.data(), length);
    scale_row<simd::Half>.of(GetParam())(squares.data(), wide.data(), factors.data(), length);
    for (std::size_t i = 0; i < count; ++i) {
      simd::Half square{};
      simd::round_to(square, wide[i] * wide[i]);
      EXPECT_EQ(same[i].bits, factors[i].bits);
      EXPECT_EQ(squares[i].bits, square.bits);
    }
  }
}

TEST_P(ConvertRowTest, QuotientsAndProductsAreRoundedOnce) {
  for (const std::int64_t length : testing::kRowLengths) {
    const auto from = testing::elements<BFloat16>(length, 1);
    auto quotients = from;
    quotients.push_back(BFloat16{7});
    auto products = quotients;
    divide_row<BFloat16>.of(GetParam())(quotients.data(), 3, length);
    multiply_row<BFloat16>.of(GetParam())(products.data(), 3, length);
    EXPECT_EQ(quotients.back().bits, 7);
    EXPECT_EQ(products.back().bits, 7);
    for (std::size_t i = 0; i < from.size(); ++i) {
      BFloat16 quotient{}, product{};
      simd::round_to(quotient, simd::widen(from[i]) / 3);
      simd::round_to(product, simd::widen(from[i]) * 3);
      EXPECT_EQ(quotients[i].bits, quotient.bits);
      EXPECT_EQ(products[i].bits, product.bits);
    }
  }
}

TEST_P(ConvertRowTest, BytesAreThemselves) {
  for (std::int64_t length = 0; length <= 256; ++length) {
    std::vector<std::int8_t> bytes;
    for (std::int64_t i = 0; i < length; ++i) bytes.push_back(static_cast<std::int8_t>(i - 128));
    std::vector<BFloat16> to(bytes.size() + 1, BFloat16{7});
    widen_bytes.of(GetParam())(to.data(), bytes.data(), length);
    EXPECT_EQ(to.back().bits, 7);
    for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(testing::exact(to[i]), bytes[i]);
  }
}

}  // namespace
}  // namespace loom::kernels
