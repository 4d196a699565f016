// SPDX-License-Identifier: BSD-3-Clause
// Narrow products and narrow sums against those in double precision.
#include "loom/kernels/gemm/narrow_rows.h"

#include "loom/kernels/gemm/narrow_sums.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <vector>

namespace loom::kernels::gemm {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

double allowed(std::int64_t summands) { return static_cast<double>(summands + 1) * 20 * 0x1p-24; }

class NarrowRowsTest : public testing::SimdTest {
 protected:
  /// `gap`: elements of somebody else's behind each row.
  void expect_product(std::int64_t rows, std::int64_t inner, std::int64_t columns, bool transposed,
                      bool add, std::int64_t gap, bool biased = false) {
    const auto left = testing::elements<float>(rows * inner, 1);
    const auto right = testing::elements<float>(inner * kNarrowColumns, 2);
    const auto bias = testing::elements<float>(kNarrowColumns, 4);
    const std::int64_t ld = columns + gap, size = (rows - 1) * ld + columns;
    // Exactly as large as what may be touched, and before and behind it what may not be.
    const auto before = testing::elements<float>(size + 2, 3);
    auto after = before;
    const std::int64_t row_stride = transposed ? 1 : inner, step = transposed ? rows : 1;
    multiply_narrow.of(GetParam())({rows, inner, columns, left.data(), row_stride, step,
                                    right.data(), after.data() + 1, ld,
                                    biased ? bias.data() : nullptr, add});
    EXPECT_EQ(after.front(), before.front());
    EXPECT_EQ(after.back(), before.back());
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t row = i / ld, column = i % ld;
      const float now = after[at(i + 1)], was = before[at(i + 1)];
      if (column >= columns) {
        EXPECT_EQ(now, was) << row;
        continue;
      }
      double sum = add ? was : (biased ? bias[at(column)] : 0);
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += double{left[at(row * row_stride + k * step)]} *
               double{right[at(k * kNarrowColumns + column)]};
      }
      EXPECT_NEAR(now, sum, allowed(inner)) << row << " " << column << " of " << columns;
    }
  }
};
LOOM_TEST_SIMD_LEVELS(NarrowRowsTest);

TEST_P(NarrowRowsTest, OfEachWidthAndDepth) {
  for (std::int64_t columns = 1; columns <= kNarrowColumns; ++columns) {
    for (std::int64_t inner = 1; inner <= kNarrowInner; ++inner) {
      expect_product(37, inner, columns, false, false, 0);
      expect_product(18, inner, columns, true, false, 0, /*biased=*/true);
    }
  }
}
TEST_P(NarrowRowsTest, OfFewRows) {
  for (const std::int64_t columns : {1, 3, 8, 15, 16}) {
    for (std::int64_t rows = 1; rows <= 9; ++rows) {
      expect_product(rows, 3, columns, true, false, 0);
      expect_product(rows, 12, columns, false, true, 0);
    }
  }
}
TEST_P(NarrowRowsTest, LeavesWhatLiesBetweenRows) {
  for (const std::int64_t columns : {2, 7, 16}) {
    for (const bool add : {false, true}) {
      expect_product(21, 5, columns, false, add, 3);
      expect_product(21, 11, columns, true, add, 40);
    }
  }
}

class NarrowSumsTest : public testing::SimdTest {
 protected:
  void expect_sums(std::int64_t rows, std::int64_t left_columns, std::int64_t right_columns,
                   bool transposed, std::int64_t gap) {
    const std::int64_t right_row = right_columns + gap;
    const auto left = testing::elements<float>(rows * left_columns, 1);
    const auto right = testing::elements<float>((rows - 1) * right_row + right_columns, 2);
    const auto before = testing::elements<float>(left_columns * kMaxNarrowSums, 3);
    auto sums = before;
    const std::int64_t left_row = transposed ? 1 : left_columns, step = transposed ? rows : 1;
    add_narrow_sums.of(GetParam())({rows, left_columns, right_columns, left.data(), left_row, step,
                                    right.data(), right_row, sums.data()});
    for (std::int64_t a = 0; a < left_columns; ++a) {
      for (std::int64_t b = 0; b < right_columns; ++b) {
        double sum = before[at(a * kMaxNarrowSums + b)];
        for (std::int64_t row = 0; row < rows; ++row) {
          sum +=
              double{left[at(row * left_row + a * step)]} * double{right[at(row * right_row + b)]};
        }
        EXPECT_NEAR(sums[at(a * kMaxNarrowSums + b)], sum, allowed(rows)) << a << " " << b;
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(NarrowSumsTest);

TEST_P(NarrowSumsTest, OfEachWidth) {
  for (std::int64_t left = 1; left <= kMaxNarrowSums; ++left) {
    for (std::int64_t right = 1; right <= kMaxNarrowSums; ++right) {
      expect_sums(19, left, right, false, 0);
    }
  }
}
TEST_P(NarrowSumsTest, OfFewAndOfManyRows) {
  for (const std::int64_t rows : {1, 2, 3, 5, 255, 257, 600}) {
    for (const std::int64_t gap : {0, 5}) {
      expect_sums(rows, 3, 5, false, gap);
      expect_sums(rows, 10, 16, true, gap);
    }
  }
}

}  // namespace
}  // namespace loom::kernels::gemm
