// SPDX-License-Identifier: BSD-3-Clause
// Products of rows of bytes, which are exact, the least and the greatest byte among them.
#include "loom/kernels/gemm/byte_rows.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <algorithm>
#include <cstdint>
#include <vector>

namespace loom::kernels::gemm {
namespace {

constexpr std::int64_t kRows = 6, kColumns = 11, kLongest = 301;
constexpr std::int32_t kUntouched = -7;

std::vector<std::int8_t> bytes(std::int64_t count, std::uint32_t seed) {
  std::vector<std::int8_t> made;
  for (const float value : testing::numbers(count, seed)) {
    // Many are the least or the greatest, whose products do not fit 16 bits.
    made.push_back(static_cast<std::int8_t>(std::clamp(value * 400, -128.0F, 127.0F)));
  }
  return made;
}

template <class Multiply>
void expect_products(const Multiply& multiply) {
  const auto left = bytes(kRows * kLongest, 1), matrix = bytes(kColumns * kLongest, 2);
  for (std::int64_t rows = 1; rows <= kRows; ++rows) {
    for (std::int64_t columns = 1; columns < kColumns; ++columns) {
      for (const std::int64_t inner : {0, 1, 15, 16, 33, 64, 128, 129, 300}) {
        std::vector<std::int32_t> to(rows * kColumns, kUntouched);
        multiply(ByteRows{rows, columns, inner, left.data(), kLongest, matrix.data(), kLongest,
                          to.data(), kColumns});
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < kColumns; ++j) {
            std::int32_t sum = 0;
            for (std::int64_t k = 0; k < inner; ++k) {
              sum += left[i * kLongest + k] * matrix[j * kLongest + k];
            }
            ASSERT_EQ(to[i * kColumns + j], j < columns ? sum : kUntouched)
                << rows << ' ' << columns << ' ' << inner;
          }
        }
      }
    }
  }
}

class ByteRowsTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(ByteRowsTest);
TEST_P(ByteRowsTest, AreExact) { expect_products(multiply_byte_rows.of(GetParam())); }

class ByteRowsByFourTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVEL(ByteRowsByFourTest, SimdLevel::kAvx512Bf16);
TEST_P(ByteRowsByFourTest, AreExact) { expect_products(multiply_byte_rows_by_four); }

}  // namespace
}  // namespace loom::kernels::gemm
