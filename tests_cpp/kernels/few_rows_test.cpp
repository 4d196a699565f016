// SPDX-License-Identifier: BSD-3-Clause
// Products of a few rows with weights as they lie, against sums in double precision.
#include "loom/kernels/gemm/few_rows.h"

#include "loom/kernels/gemm/int4_rows.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace loom::kernels::gemm {
namespace {

using simd::BFloat16;
using simd::Half;
using testing::elements;
using testing::exact;
using testing::numbers;

constexpr std::int64_t kRows = 7, kColumns = 37, kLongest = 301;
// Half a unit in the last place for each product, relative to the sum of their magnitudes.
constexpr double kAllowed = kLongest * 0x1p-24;

template <class W>
std::vector<W> weights(std::int64_t count) {
  if constexpr (std::is_same_v<W, std::int8_t>) {
    std::vector<W> made;
    for (const float value : numbers(count, 5)) made.push_back(static_cast<W>(value * 127));
    return made;
  } else {
    return elements<W>(count, 5);
  }
}
template <class W>
double number(W weight) {
  if constexpr (std::is_same_v<W, std::int8_t>) {
    return weight;
  } else {
    return exact(weight);
  }
}

template <class T, class W, class Multiply>
void expect_products(const Multiply& multiply) {
  const auto left = elements<T>(kRows * kLongest, 1);
  const auto matrix = weights<W>(kColumns * kLongest);
  for (std::int64_t rows = 1; rows <= kRows; ++rows) {
    for (const std::int64_t inner : {1, 15, 16, 33, 64, 300}) {
      std::vector<float> to(rows * kColumns);
      multiply(FewRows<T, W>{rows, kColumns, inner, left.data(), kLongest, matrix.data(), kLongest,
                             to.data(), kColumns});
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < kColumns; ++j) {
          double sum = 0, magnitude = 0;
          for (std::int64_t k = 0; k < inner; ++k) {
            const double product = exact(left[i * kLongest + k]) * number(matrix[j * kLongest + k]);
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(to[i * kColumns + j], sum, kAllowed * magnitude) << rows << ' ' << inner;
        }
      }
    }
  }
}

/// A block of `columns`, packed one way or the other.
template <class T, class Left, class Multiply>
void expect_half_bytes(std::int64_t columns, bool split, Multiply multiply) {
  constexpr std::int64_t kInner = 192, kGroup = 64;
  const auto left = elements<Left>(5 * kInner, 1);
  const auto scales = elements<T>(kInner / kGroup * columns * 2, 2);
  std::vector<std::uint8_t> packed;
  for (const float value : numbers(kInner * columns / 2, 3)) {
    packed.push_back(static_cast<std::uint8_t>(127.5F * (value + 1)));
  }
  std::vector<float> to(5 * columns);
  multiply(Int4Rows<T, Left>{.rows = 5,
                             .columns = columns,
                             .inner = kInner,
                             .group = kGroup,
                             .left = left.data(),
                             .left_ld = kInner,
                             .packed = packed.data(),
                             .split = split,
                             .scales = scales.data(),
                             .scales_ld = 2 * columns,
                             .to = to.data(),
                             .ld = columns});
  const std::int64_t half = columns / 2;
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t k = 0; k < kInner; ++k) {
        const bool upper = split ? j >= half : j % 2 == 1;
        const int byte = packed[k * half + (split ? j % half : j / 2)];
        const T* const of = &scales[(k / kGroup * columns + j) * 2];
        const int weight = (upper ? byte >> 4 : byte & 15) - 8;
        const double factor = exact(left[i * kInner + k]);
        sum += factor * (weight * exact(of[0]) + exact(of[1]));
        magnitude += std::abs(factor) * (std::abs(weight * exact(of[0])) + std::abs(exact(of[1])));
      }
      EXPECT_NEAR(to[i * columns + j], sum, kInner * 0x1p-24 * magnitude)
          << columns << ' ' << split << ' ' << j;
    }
  }
}

class FewRowsTest : public testing::SimdTest {
 protected:
  template <class T, class W>
  void expect() {
    expect_products<T, W>(multiply_few_rows<FewRows<T, W>>.of(GetParam()));
  }

  template <class T>
  void expect_int4(std::int64_t columns, bool split) {
    expect_half_bytes<T, float>(columns, split, multiply_int4_rows<T>.of(GetParam()));
  }
};
LOOM_TEST_SIMD_LEVELS(FewRowsTest);

TEST_P(FewRowsTest, OfFloats) { expect<float, float>(); }
TEST_P(FewRowsTest, OfBFloat16) { expect<BFloat16, BFloat16>(); }
TEST_P(FewRowsTest, OfHalf) { expect<Half, Half>(); }
TEST_P(FewRowsTest, OfFloatsAndBytes) { expect<float, std::int8_t>(); }

TEST_P(FewRowsTest, OfHalfBytes) {
  expect_int4<float>(64, true);
  expect_int4<BFloat16>(64, true);
  expect_int4<Half>(32, true);
  expect_int4<float>(32, true);
}
TEST_P(FewRowsTest, OfHalfBytesInPairs) {
  expect_int4<float>(16, false);
  expect_int4<BFloat16>(48, false);
}

class DotPairsTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVEL(DotPairsTest, SimdLevel::kAvx512Bf16);

TEST_P(DotPairsTest, OfBFloat16) {
  expect_products<BFloat16, BFloat16>(multiply_few_rows_bfloat16);
}
TEST_P(DotPairsTest, OfHalfBytes) {
  expect_half_bytes<BFloat16, BFloat16>(64, true, multiply_int4_rows_bfloat16);
}

}  // namespace
}  // namespace loom::kernels::gemm
