// SPDX-License-Identifier: BSD-3-Clause
// Sums of weighted rows against those in double precision.
#include "loom/kernels/gemm/weighted_rows.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <vector>

namespace loom::kernels::gemm {
namespace {

class WeightedRowsTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_sums() {
    for (const std::int64_t columns : testing::kRowLengths) {
      for (const std::int64_t rows : {1, 7, 8, 19}) expect_sums<T>(rows, columns);
    }
  }

 private:
  template <class T>
  void expect_sums(std::int64_t rows, std::int64_t columns) {
    const std::int64_t stride = columns + 3;
    const auto matrix = testing::elements<T>(rows * stride, 1);
    const auto weights = testing::elements<float>(rows, 2);
    const auto before = testing::elements<float>(columns, 3);
    auto sums = before;
    add_weighted_rows<T>.of(GetParam())(matrix.data(), stride, weights.data(), rows, columns,
                                        sums.data());
    for (std::int64_t c = 0; c < columns; ++c) {
      double expected = before[static_cast<std::size_t>(c)];
      for (std::int64_t r = 0; r < rows; ++r) {
        expected += testing::exact(weights[static_cast<std::size_t>(r)]) *
                    testing::exact(matrix[static_cast<std::size_t>(r * stride + c)]);
      }
      const double allowed = static_cast<double>(rows + 1) * 20 * 0x1p-24;
      EXPECT_NEAR(sums[static_cast<std::size_t>(c)], expected, allowed) << rows << " " << columns;
    }
  }
};
LOOM_TEST_SIMD_LEVELS(WeightedRowsTest);

TEST_P(WeightedRowsTest, OfFloats) { expect_sums<float>(); }
TEST_P(WeightedRowsTest, OfBFloat16) { expect_sums<simd::BFloat16>(); }
TEST_P(WeightedRowsTest, OfHalf) { expect_sums<simd::Half>(); }

}  // namespace
}  // namespace loom::kernels::gemm
