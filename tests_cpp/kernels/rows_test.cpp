// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/rows.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <cstdint>
#include <vector>

namespace loom::kernels {
namespace {

constexpr std::int64_t kRows = 5, kColumns = 7, kFromLd = 9, kToLd = 11;
constexpr float kBeside = 77;

/// A rectangle of kRows rows, and what lies beside it.
struct Rectangle {
  std::vector<float> elements = std::vector<float>(kRows * kToLd, kBeside);

  [[nodiscard]] float& at(std::int64_t row, std::int64_t column) {
    return elements[static_cast<std::size_t>(row * kToLd + column)];
  }
};

class RowsTest : public ::testing::Test {
 protected:
  [[nodiscard]] float from(std::int64_t row, std::int64_t column) const {
    return from_[static_cast<std::size_t>(row * kFromLd + column)];
  }

  const std::vector<float> from_ = testing::elements<float>(kFromLd * kFromLd, 1);
  Rectangle made_, expected_;
};

TEST_F(RowsTest, AreCopiedAndFilledWithZeros) {
  copy_rows(kRows, kColumns, kColumns + 2, from_.data(), kFromLd, made_.elements.data(), kToLd);
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns + 2; ++j) {
      expected_.at(i, j) = j < kColumns ? from(i, j) : 0;
    }
  }
  EXPECT_EQ(made_.elements, expected_.elements);
}

TEST_F(RowsTest, AreFilledWithANumber) {
  for (const std::int64_t columns : {std::int64_t{1}, std::int64_t{2}, kColumns}) {
    fill_rows(kRows, columns, 3.F, &made_.at(0, 1), kToLd);
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) expected_.at(i, 1 + j) = 3;
    }
    EXPECT_EQ(made_.elements, expected_.elements);
  }
}

TEST_F(RowsTest, AreFilledWithTheirElementsOfAColumn) {
  const auto halves = testing::elements<simd::BFloat16>(kRows * 2, 1);
  spread_column(kRows, kColumns, halves.data(), 2, made_.elements.data(), kToLd);
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      expected_.at(i, j) = simd::widen(halves[static_cast<std::size_t>(2 * i)]);
    }
  }
  EXPECT_EQ(made_.elements, expected_.elements);
}

TEST_F(RowsTest, ElementsMoveFromStepsToSteps) {
  copy_steps(kRows, from_.data() + 2, kFromLd, &made_.at(0, 1), kToLd);
  for (std::int64_t i = 0; i < kRows; ++i) expected_.at(i, 1) = from(i, 2);
  EXPECT_EQ(made_.elements, expected_.elements);
}

TEST_F(RowsTest, AMatrixIsAddedTransposed) {
  add_transposed(kRows, kColumns, from_.data(), kFromLd, made_.elements.data(), kToLd);
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) expected_.at(i, j) += from(j, i);
  }
  EXPECT_EQ(made_.elements, expected_.elements);
}

}  // namespace
}  // namespace loom::kernels
