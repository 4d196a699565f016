// SPDX-License-Identifier: BSD-3-Clause
// Products of rows and columns against a plain loop in double.
#include "loom/kernels/norm/products.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cstdint>
#include <vector>

namespace loom::kernels::norm {
namespace {

using testing::elements;
using testing::exact;

// Relative, of a product of up to 300 numbers: half a unit in the last place for each.
constexpr double kAllowed = 300 * 0x1p-24;

/// Numbers about 1.
template <class T>
std::vector<T> factors(std::int64_t count) {
  std::vector<T> made = elements<T>(count, 3);
  for (T& each : made) simd::round_to(each, 1 + static_cast<float>(exact(each)) / 64);
  return made;
}

class ProductsTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_products() {
    for (const std::int64_t count : testing::kRowLengths) {
      const std::vector<T> row = factors<T>(count);
      double expected = 1;
      for (const T x : row) expected *= exact(x);
      EXPECT_NEAR(product_of<T>.of(GetParam())(row.data(), count), expected, expected * kAllowed);
    }
  }

  template <class T>
  void expect_products_of_columns() {
    constexpr std::int64_t kRows = 13, kStride = 310;
    const std::vector<T> from = factors<T>(kRows * kStride);
    for (const std::int64_t columns : {1, 7, 16, 64, 100, 307}) {
      std::vector<float> to(static_cast<std::size_t>(columns + 1), -1);
      products_of_columns<T>.of(GetParam())(from.data(), kRows, kStride, to.data(), columns);
      for (std::int64_t c = 0; c < columns; ++c) {
        double expected = 1;
        for (std::int64_t r = 0; r < kRows; ++r) expected *= exact(from[r * kStride + c]);
        EXPECT_NEAR(to[c], expected, expected * kAllowed) << columns;
      }
      EXPECT_EQ(to.back(), -1) << "beyond the columns";
    }
  }
};
LOOM_TEST_SIMD_LEVELS(ProductsTest);

TEST_P(ProductsTest, OfRows) {
  expect_products<float>();
  expect_products<simd::BFloat16>();
  expect_products<simd::Half>();
}

TEST_P(ProductsTest, OfColumns) {
  expect_products_of_columns<float>();
  expect_products_of_columns<simd::BFloat16>();
  expect_products_of_columns<simd::Half>();
}

}  // namespace
}  // namespace loom::kernels::norm
