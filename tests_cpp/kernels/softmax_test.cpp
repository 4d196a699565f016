// SPDX-License-Identifier: BSD-3-Clause
// Softmax of rows against the formulas in double precision.
#include "loom/kernels/norm/softmax.h"

#include "loom/kernels/norm/short_rows.h"

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
using testing::rounding_of;
using testing::ulps;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Of a weight: 2 units of exp, 1.5 of a sum of up to 1000, and roundings of the factor and product.
constexpr double kWeightUlps = 5;
// Of values below kSize: the sums' and differences' roundings, in units of the largest value.
constexpr float kSize = 8;
constexpr double kSumError = 4 * kSize * 0x1p-24;
// Rounding to bfloat16 is half a unit in the last place, and some float32 error decides ties.
template <class T>
constexpr double kRounding = sizeof(T) == 2 ? 0.51 : kWeightUlps;

struct Reference {
  double maximum = -kInfinity, sum = 0;

  template <class T>
  explicit Reference(const std::vector<T>& row) {
    for (const T x : row) maximum = std::max(maximum, exact(x));
    for (const T x : row) sum += std::exp(difference(x));
  }
  /// From the maximum, as a float has it.
  template <class T>
  [[nodiscard]] double difference(T x) const {
    return static_cast<float>(exact(x) - maximum);
  }
};

class SoftmaxTest : public testing::SimdTest {
 protected:
  template <class T>
  std::vector<T> softmax(const std::vector<T>& row) {
    std::vector<T> to(row.size());
    std::vector<float> scratch(row.size() + 32);
    softmax_row<T>.of(GetParam())(to.data(), row.data(), scratch.data(), length(row));
    return to;
  }
  template <class T>
  std::vector<T> log_softmax(const std::vector<T>& row) {
    std::vector<T> to(row.size());
    log_softmax_row<T>.of(GetParam())(to.data(), row.data(), nullptr, length(row));
    return to;
  }
  template <class T>
  static std::int64_t length(const std::vector<T>& row) {
    return static_cast<std::int64_t>(row.size());
  }

  template <class T>
  void expect_softmax() {
    for (const std::int64_t columns : testing::kRowLengths) {
      const auto row = elements<T>(columns, 1, kSize);
      const Reference reference(row);
      const auto weights = softmax(row), logarithms = log_softmax(row);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double weight = std::exp(reference.difference(row[i])) / reference.sum;
        EXPECT_LE(ulps(weights[i], weight), kRounding<T>) << columns;
        const double logarithm = reference.difference(row[i]) - std::log(reference.sum);
        EXPECT_NEAR(exact(logarithms[i]), logarithm, kSumError + rounding_of<T>(logarithm))
            << columns;
      }
    }
  }

  /// Element c of row r of rows that are turned.
  static std::size_t turned_at(std::int64_t r, std::int64_t c) {
    return static_cast<std::size_t>(c * kTurnedRows + r);
  }

  template <class T>
  void expect_turned() {
    for (const std::int64_t columns : {1, 2, 7, 24}) {
      auto weights = elements<T>(columns * kTurnedRows, 6, kSize);
      auto logarithms = weights;
      const auto values = weights;
      std::vector<float> scratch(static_cast<std::size_t>(columns * kTurnedRows));
      std::vector<float> maxima(kTurnedRows), sums(kTurnedRows);
      softmax_turned<T>.of(GetParam())(weights.data(), scratch.data(), columns, maxima.data(),
                                       sums.data());
      log_softmax_turned<T>.of(GetParam())(logarithms.data(), columns);
      for (std::int64_t r = 0; r < kTurnedRows; ++r) {
        std::vector<T> row;
        for (std::int64_t c = 0; c < columns; ++c) row.push_back(values[turned_at(r, c)]);
        const Reference reference(row);
        EXPECT_EQ(maxima[static_cast<std::size_t>(r)], reference.maximum);
        EXPECT_LE(ulps(sums[static_cast<std::size_t>(r)], reference.sum), kWeightUlps);
        for (std::int64_t c = 0; c < columns; ++c) {
          const double difference = reference.difference(values[turned_at(r, c)]);
          EXPECT_LE(ulps(weights[turned_at(r, c)], std::exp(difference) / reference.sum),
                    kRounding<T>);
          const double logarithm = difference - std::log(reference.sum);
          EXPECT_NEAR(exact(logarithms[turned_at(r, c)]), logarithm,
                      kSumError + rounding_of<T>(logarithm));
        }
      }
    }
  }

  template <class T>
  void expect_gradients() {
    for (const std::int64_t columns : testing::kRowLengths) {
      const auto grad = elements<T>(columns, 2), row = elements<T>(columns, 3, kSize);
      const auto weights = softmax(row), logarithms = log_softmax(row);
      std::vector<T> of_softmax(row.size()), of_logarithm(row.size());
      softmax_gradient_row<T>.of(GetParam())(of_softmax.data(), grad.data(), weights.data(),
                                             columns);
      log_softmax_gradient_row<T>.of(GetParam())(of_logarithm.data(), grad.data(),
                                                 logarithms.data(), columns);
      double product = 0, sum = 0, size = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        product += exact(grad[i]) * exact(weights[i]);
        sum += exact(grad[i]);
        size += std::abs(exact(grad[i]));
      }
      for (std::size_t i = 0; i < row.size(); ++i) {
        const auto expect_near = [&](T actual, double expected, double allowed) {
          EXPECT_NEAR(exact(actual), expected, allowed + rounding_of<T>(expected)) << columns;
        };
        expect_near(of_softmax[i], (exact(grad[i]) - product) * exact(weights[i]),
                    4 * 0x1p-24 * exact(weights[i]));
        const double weight = std::exp(exact(logarithms[i]));
        expect_near(of_logarithm[i], exact(grad[i]) - weight * sum,
                    (1 + 5 * weight * size) * 0x1p-24);
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(SoftmaxTest);

TEST_P(SoftmaxTest, OfFloats) { expect_softmax<float>(); }
TEST_P(SoftmaxTest, OfBFloat16) { expect_softmax<BFloat16>(); }
TEST_P(SoftmaxTest, OfTurnedFloats) { expect_turned<float>(); }
TEST_P(SoftmaxTest, OfTurnedBFloat16) { expect_turned<BFloat16>(); }
TEST_P(SoftmaxTest, GradientsOfFloats) { expect_gradients<float>(); }
TEST_P(SoftmaxTest, GradientsOfBFloat16) { expect_gradients<BFloat16>(); }

TEST_P(SoftmaxTest, OneNaNMakesARowOfThem) {
  for (const std::size_t at : {0U, 20U, 39U}) {
    auto row = elements<float>(40, 4);
    row[at] = std::numeric_limits<float>::quiet_NaN();
    for (const float value : softmax(row)) EXPECT_TRUE(std::isnan(value));
    for (const float value : log_softmax(row)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(SoftmaxTest, MinusInfinityHasNoWeight) {
  std::vector<float> row(37, -kInfinity);
  row[30] = row[2] = 1e30F;
  const auto weights = softmax(row);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(weights[i], i == 2 || i == 30 ? 0.5F : 0) << i;
  }
}

TEST_P(SoftmaxTest, ResultsMayTakeTheRowsPlace) {
  auto row = elements<BFloat16>(77, 5, kSize);
  const auto apart = softmax(row);
  std::vector<float> scratch(row.size() + 32);
  softmax_row<BFloat16>.of(GetParam())(row.data(), row.data(), scratch.data(), length(row));
  for (std::size_t i = 0; i < row.size(); ++i) EXPECT_EQ(row[i].bits, apart[i].bits);
}

struct ShortRowsTest : ::testing::Test {
  static constexpr std::int64_t kColumns = 5;

  static void expect_rows(std::int64_t rows) {
    const auto values = elements<float>(rows * kColumns, 7, kSize);
    std::vector<float> weights(values.size()), logarithms(values.size());
    std::vector<float> room(short_rows_room(kColumns)), scratch(64);
    softmax_short_rows(weights.data(), values.data(), rows, kColumns, false, room.data());
    softmax_short_rows(logarithms.data(), values.data(), rows, kColumns, true, room.data());
    for (std::int64_t at = 0; at < rows * kColumns; at += kColumns) {
      float row[kColumns], logarithm[kColumns];
      softmax_row<float>(row, values.data() + at, scratch.data(), kColumns);
      log_softmax_row<float>(logarithm, values.data() + at, scratch.data(), kColumns);
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const auto i = static_cast<std::size_t>(at + c);
        EXPECT_LE(ulps(weights[i], row[c]), kWeightUlps) << rows;
        EXPECT_NEAR(logarithms[i], logarithm[c], kSumError) << rows;
      }
    }
  }
};

TEST_F(ShortRowsTest, AreAsThoseByThemselves) {
  for (const std::int64_t rows : {1, 63, 64, 65, 200}) expect_rows(rows);
}

TEST_F(ShortRowsTest, ResultsMayTakeTheRowsPlaceOrBeLeftOut) {
  constexpr std::int64_t kRows = 70;
  auto values = elements<float>(kRows * kColumns, 8, kSize);
  std::vector<float> apart(values.size()), room(short_rows_room(kColumns));
  std::vector<float> maxima(kRows), sums(kRows), other_sums(kRows);
  softmax_short_rows(apart.data(), values.data(), kRows, kColumns, maxima.data(), sums.data(),
                     room.data());
  softmax_short_rows(nullptr, values.data(), kRows, kColumns, maxima.data(), other_sums.data(),
                     room.data());
  EXPECT_EQ(sums, other_sums);
  softmax_short_rows(values.data(), values.data(), kRows, kColumns, false, room.data());
  EXPECT_EQ(values, apart);
}

}  // namespace
}  // namespace loom::kernels::norm
