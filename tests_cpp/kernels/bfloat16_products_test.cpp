// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/bfloat16.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::gemm {
namespace {

using simd::BFloat16;

constexpr std::int64_t kCounts[] = {1, 15, 16, 17, 31, 32, 33, 64, 100};

std::vector<BFloat16> halves(std::int64_t count, std::uint32_t seed) {
  const auto values = testing::numbers(count, seed);
  std::vector<BFloat16> made(values.size());
  for (std::size_t i = 0; i < made.size(); ++i) simd::round_to(made[i], values[i]);
  return made;
}

class BFloat16ProductsTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVEL(BFloat16ProductsTest, SimdLevel::kAvx512Bf16);

TEST_P(BFloat16ProductsTest, RowsBecomeOneOfPairs) {
  for (const std::int64_t count : kCounts) {
    const auto first = halves(count, 1), second = halves(count, 2);
    std::vector<std::uint32_t> made(static_cast<std::size_t>(count) + 1, 7), expected = made;
    for (std::int64_t i = 0; i < count; ++i) {
      expected[i] = first[i].bits | std::uint32_t{second[i].bits} << 16;
    }
    interleave_pairs(first.data(), second.data(), count, made.data());
    EXPECT_EQ(made, expected) << count;
  }
}

// To the bit: the sum in float32 is rounded once, to even; numbers that are not normal become 0.
TEST_P(BFloat16ProductsTest, SumsAreRounded) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  for (const std::int64_t count : kCounts) {
    auto sums = testing::numbers(count, 3);
    const float special[] = {1 + 0x1p-8F,      1 + 3 * 0x1p-8F, kLeast / 2,
                             -kLeast * 0.999F, 0x1.ffp127F,     HUGE_VALF};
    for (std::size_t i = 0; i < sums.size() && i < std::size(special); ++i) sums[i] = special[i];
    const auto addend = halves(count, 4);
    for (const bool added : {false, true}) {
      std::vector<BFloat16> made(sums.size() + 1, BFloat16{7});
      store_sums(sums.data(), added ? addend.data() : nullptr, count, made.data());
      for (std::int64_t i = 0; i < count; ++i) {
        const float sum = sums[i] + (added ? simd::widen(addend[i]) : 0.F);
        const float normal = std::abs(sum) < kLeast ? std::copysign(0.F, sum) : sum;
        EXPECT_EQ(made[i].bits, simd::bfloat16_bits(normal)) << count << ", " << i;
      }
      EXPECT_EQ(made.back().bits, 7) << "what lies behind is not written";
    }
  }
}

TEST_P(BFloat16ProductsTest, ANanStaysOne) {
  std::vector<float> sums(40, std::nanf(""));
  std::vector<BFloat16> made(sums.size());
  store_sums(sums.data(), nullptr, 40, made.data());
  for (const BFloat16 number : made) EXPECT_TRUE(std::isnan(simd::widen(number)));
}

TEST_P(BFloat16ProductsTest, RowsAreGatheredOfPieces) {
  // A first vector of one to four pieces, and one that has a hole and an end.
  constexpr std::int64_t kStep = 5, kRows = 3, kLd = 3 * kVectorElements;
  const auto base = halves(400, 5);
  const auto lanes = [](int first, int last) {
    return static_cast<std::uint32_t>((std::uint64_t{1} << last) - (std::uint64_t{1} << first));
  };
  for (int pieces = 1; pieces <= 5; ++pieces) {
    std::vector<RowPiece> row;
    for (int i = 0; i < pieces; ++i) {
      row.push_back({20 + 40 * i, lanes(6 * i, i + 1 < pieces ? 6 * i + 6 : 32), i + 1 == pieces});
    }
    row.push_back({7, lanes(0, 9), false});
    row.push_back({90, lanes(11, 20), true});
    std::vector<BFloat16> made(kRows * kLd, BFloat16{7});
    gather_rows(base.data(), kStep, kRows, row.data(), row.size(), made.data(), kLd);
    for (std::int64_t i = 0; i < kRows; ++i) {
      std::vector<std::uint16_t> expected(kLd, 0);
      std::int64_t vector = 0;
      for (const RowPiece& piece : row) {
        for (std::int64_t lane = 0; lane < kVectorElements; ++lane) {
          if ((piece.elements >> lane & 1) == 0) continue;
          expected[vector + lane] = base[i * kStep + piece.offset + lane].bits;
        }
        if (piece.ends) vector += kVectorElements;
      }
      for (std::int64_t j = 0; j < kLd; ++j) {
        const std::uint16_t wanted = j < vector ? expected[j] : 7;
        EXPECT_EQ(made[i * kLd + j].bits, wanted) << pieces << ", " << i << ", " << j;
      }
    }
  }
}

/// left x right in double precision, and the sum of the products' sizes.
struct Reference {
  double sum = 0, sizes = 0;
};

class PairsTest : public BFloat16ProductsTest {
 protected:
  static constexpr std::int64_t kRows = 3, kLd = 70;

  static Reference element(const std::vector<BFloat16>& left, const std::vector<BFloat16>& right,
                           std::int64_t inner, std::int64_t row, std::int64_t column) {
    Reference made;
    for (std::int64_t k = 0; k < inner; ++k) {
      const double product = double{simd::widen(left[row * inner + k])} *
                             simd::widen(right[(k / 2 * kLd + column) * 2 + k % 2]);
      made.sum += product;
      made.sizes += std::abs(product);
    }
    return made;
  }
};
LOOM_TEST_SIMD_LEVEL(PairsTest, SimdLevel::kAvx512Bf16);

// A step of the sum rounds twice: for each pair of products, 2 units of rounding of what is summed.
TEST_P(PairsTest, AreMultiplied) {
  for (const std::int64_t inner : {2, 16, 64}) {
    const auto left = halves(kRows * inner, 6), right = halves(inner * kLd, 7);
    for (const std::int64_t columns : {1, 16, 33, 64}) {
      for (const bool add : {false, true}) {
        std::vector<float> made(kRows * kLd, 0.5F);
        multiply_pairs(kRows, columns, inner, left.data(), inner, right.data(), kLd, made.data(),
                       kLd, add);
        for (std::int64_t i = 0; i < kRows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            const Reference exact = element(left, right, inner, i, j);
            const double start = add ? 0.5 : 0;
            EXPECT_NEAR(made[i * kLd + j], exact.sum + start,
                        static_cast<double>(inner) * 0x1p-24 * (exact.sizes + start));
          }
          EXPECT_EQ(made[i * kLd + columns], 0.5F) << "what lies beside is not written";
        }
      }
    }
  }
}

// Sums of products of small whole numbers are exact, whatever their order.
TEST_P(PairsTest, WholeNumbersAreExact) {
  constexpr std::int64_t kInner = 32, kColumns = 64;
  auto left = halves(kRows * kInner, 8), right = halves(kInner * kLd, 9);
  for (auto* numbers : {&left, &right}) {
    for (BFloat16& number : *numbers) simd::round_to(number, std::round(16 * simd::widen(number)));
  }
  std::vector<float> made(kRows * kLd);
  multiply_pairs(kRows, kColumns, kInner, left.data(), kInner, right.data(), kLd, made.data(), kLd,
                 false);
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      EXPECT_EQ(made[i * kLd + j], element(left, right, kInner, i, j).sum);
    }
  }
}

}  // namespace
}  // namespace loom::kernels::gemm
