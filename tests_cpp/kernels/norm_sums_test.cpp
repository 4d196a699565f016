// SPDX-License-Identifier: BSD-3-Clause
// Sums and extrema of rows, for every instruction set.
#include "loom/kernels/gemm/inner_product.h"
#include "loom/kernels/norm/extrema.h"
#include "loom/kernels/norm/sums.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace loom::kernels::norm {
namespace {

using simd::BFloat16;
using testing::elements;
using testing::exact;

// Each sum in float is of 16 elements a lane, below 2 in products: half a unit in the last place of
// 32 each, of `count` numbers in all.
double allowed(std::int64_t count) { return static_cast<double>(count + 16) * 32 * 0x1p-25; }

class NormSumsTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_runs() {
    constexpr std::int64_t kRuns = 5, kStride = 4100;
    constexpr float kMean = 0.125F;
    const auto grad = elements<T>(kRuns * kStride, 1), from = elements<T>(kRuns * kStride, 2);
    for (const std::int64_t columns : {1, 7, 16, 100, 1023, 4099}) {
      double sum = 0, squares = 0, slopes = 0, products = 0;
      for (std::int64_t run = 0; run < kRuns; ++run) {
        for (std::int64_t i = run * kStride; i < run * kStride + columns; ++i) {
          const double distance = exact(from[i]) - kMean;
          sum += exact(from[i]);
          squares += distance * distance;
          slopes += exact(grad[i]);
          products += exact(grad[i]) * distance;
        }
      }
      const double most = allowed(kRuns * columns);
      double sums[2];
      gradient_sums_of_runs<T>.of(GetParam())(grad.data(), from.data(), kRuns, kStride, columns,
                                              kMean, sums);
      EXPECT_NEAR(sum_of_runs<T>.of(GetParam())(from.data(), kRuns, kStride, columns), sum, most);
      double moments[2];
      moment_sums_of_runs<T>.of(GetParam())(from.data(), kRuns, kStride, columns, kMean, moments);
      EXPECT_NEAR(moments[0], sum - static_cast<double>(kRuns * columns) * kMean, most);
      EXPECT_NEAR(moments[1], squares, most);
      EXPECT_NEAR(sums[0], slopes, most);
      EXPECT_NEAR(sums[1], products, most);
      EXPECT_NEAR(gemm::inner_product<T>.of(GetParam())(grad.data(), from.data(), columns),
                  inner_product(grad, from, columns), most);
    }
  }
  template <class T>
  static double inner_product(const std::vector<T>& a, const std::vector<T>& b,
                              std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += exact(a[i]) * exact(b[i]);
    return sum;
  }

  // Columns are added in the order of the rows: each is what a loop over floats gives, bit for bit,
  // but for products, which may be rounded together with their sum.
  template <class T>
  void expect_columns() {
    constexpr std::int64_t kRows = 3;
    for (const std::int64_t columns : testing::kRowLengths) {
      const auto rows = elements<T>(kRows * columns, 3), grad = elements<T>(kRows * columns, 4);
      const auto shift = elements<float>(columns, 5), before = elements<float>(columns, 6);
      auto sums = before, moments = before, squares = before, slopes = before, products = before;
      sums.push_back(1);
      add_rows<T>.of(GetParam())(rows.data(), kRows, columns, sums.data(), columns);
      EXPECT_EQ(sums.back(), 1) << "beyond the row";
      add_moments<T>.of(GetParam())(rows.data(), kRows, columns, shift.data(), moments.data(),
                                    squares.data(), columns);
      add_gradients<T>.of(GetParam())(grad.data(), rows.data(), kRows, columns, shift.data(),
                                      slopes.data(), products.data(), columns);
      for (std::int64_t i = 0; i < columns; ++i) {
        float sum = before[i], moment = before[i], slope = before[i];
        double square = before[i], product = before[i];
        for (std::int64_t at = i; at < kRows * columns; at += columns) {
          const float distance = simd::widen(rows[at]) - shift[i];
          sum += simd::widen(rows[at]);
          moment += distance;
          slope += simd::widen(grad[at]);
          square += double{distance} * distance;
          product += exact(grad[at]) * distance;
        }
        EXPECT_EQ(sums[i], sum);
        EXPECT_EQ(moments[i], moment);
        EXPECT_EQ(slopes[i], slope);
        EXPECT_NEAR(squares[i], square, kRows * 0x1p-22);
        EXPECT_NEAR(products[i], product, kRows * 0x1p-22);
      }
    }
  }

  template <class T>
  void expect_extrema() {
    for (const std::int64_t columns : testing::kRowLengths) {
      for (const std::int64_t turn : {0, 1}) {
        auto row = elements<T>(columns, 7);
        // The last one counts, too, and so do rows of one sign.
        const std::size_t last = row.size() - 1;
        simd::round_to(row[last], turn == 0 ? 2.F : -2.F);
        const auto [least, most] = extrema_of(row);
        const auto expected = std::minmax_element(
            row.begin(), row.end(), [](T a, T b) { return simd::widen(a) < simd::widen(b); });
        EXPECT_EQ(least, simd::widen(*expected.first));
        EXPECT_EQ(most, simd::widen(*expected.second));
        simd::round_to(row[last / 2], std::numeric_limits<float>::quiet_NaN());
        const auto [no_least, no_most] = extrema_of(row);
        EXPECT_TRUE(std::isnan(no_least) && std::isnan(no_most)) << columns;
      }
    }
  }
  template <class T>
  std::pair<float, float> extrema_of(const std::vector<T>& row) {
    std::pair<float, float> both;
    extrema<T>.of(GetParam())(row.data(), static_cast<std::int64_t>(row.size()), &both.first,
                              &both.second);
    return both;
  }
};
LOOM_TEST_SIMD_LEVELS(NormSumsTest);

TEST_P(NormSumsTest, RunsOfFloats) { expect_runs<float>(); }
TEST_P(NormSumsTest, RunsOfBFloat16) { expect_runs<BFloat16>(); }
TEST_P(NormSumsTest, ColumnsOfFloats) { expect_columns<float>(); }
TEST_P(NormSumsTest, ColumnsOfBFloat16) { expect_columns<BFloat16>(); }
TEST_P(NormSumsTest, ExtremaOfFloats) { expect_extrema<float>(); }
TEST_P(NormSumsTest, ExtremaOfBFloat16) { expect_extrema<BFloat16>(); }

TEST_P(NormSumsTest, NumbersAloneAreSummedUp) {
  auto row = elements<float>(3000, 8);
  double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i % 7 == 0) row[i] = std::numeric_limits<float>::quiet_NaN();
    if (i % 7 != 0) sum += row[i];
  }
  EXPECT_NEAR(sum_of_numbers<float>.of(GetParam())(row.data(), 3000), sum, allowed(3000));
}

TEST_P(NormSumsTest, DoublesAreAddedOneByOne) {
  const auto added = elements<float>(37, 9);
  std::vector<double> sums(added.size(), 0.1), wide(added.begin(), added.end());
  add_to_doubles.of(GetParam())(sums.data(), added.data(), 36);
  add_doubles.of(GetParam())(sums.data(), wide.data(), 36);
  for (std::size_t i = 0; i < 36; ++i) EXPECT_EQ(sums[i], 0.1 + wide[i] + wide[i]);
  EXPECT_EQ(sums[36], 0.1);
}

// Equal elements are all rounded to the same side: a long sum in float would be far off.
TEST_P(NormSumsTest, ManyEqualElementsLoseNothing) {
  const std::vector<float> row(1 << 20, 0.1F);
  const double sum = sum_of_runs<float>.of(GetParam())(row.data(), 1, 0, 1 << 20);
  EXPECT_NEAR(sum / (1 << 20), double{0.1F}, 0.1 * 16 * 0x1p-24);
}

}  // namespace
}  // namespace loom::kernels::norm
