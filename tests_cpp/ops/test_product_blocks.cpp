// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/product_blocks.h"

#include <gtest/gtest.h>

namespace loom::ops::detail {
namespace {

TEST(ProductBlocksTest, AreAsWideAsTwoCoresShareEvenly) {
  EXPECT_EQ(even_width(196, 64, 1, 16), 48) << "planes of 14 x 14: four blocks and a rest";
  EXPECT_EQ(even_width(196, 64, 3, 16), 48);
}

TEST(ProductBlocksTest, AreNoNarrowerThanThatNeeds) {
  EXPECT_EQ(even_width(256, 64, 1, 16), 64);
  EXPECT_EQ(even_width(784, 64, 1, 16), 64) << "twelve blocks and a rest";
  EXPECT_EQ(even_width(128, 64, 5, 16), 64);
}

TEST(ProductBlocksTest, OfBatchesAreItemsThatTakeLongEnoughTogether) {
  EXPECT_EQ(items_of_block(1000, 100), 100) << "too little for two cores";
  EXPECT_EQ(items_of_block(40'000, 100), 25) << "small products, by what calling them takes";
  EXPECT_EQ(items_of_block(40'000, 1000), 32);
  EXPECT_EQ(items_of_block(3e6, 96), 1);
}

TEST(ProductBlocksTest, OfPanelsAreSharedEvenly) {
  EXPECT_EQ(even_width(1023, 384, 1, kPanel), 256) << "four blocks and not three";
  EXPECT_EQ(even_width(129, 64, 1, kPanel), 64);
}

// What the slower one of two cores takes, over an even half.
double unevenness(Block block, std::int64_t rows, std::int64_t columns) {
  return 2. * static_cast<double>(two_cores_time(block, rows, columns)) /
         static_cast<double>(rows * round_up(columns, 16));
}

TEST(ProductBlocksTest, OfAFewColumnsMoreThanAPanelAreRows) {
  const Block plain{1, 500, 64};
  const Block even = even_blocks(plain, 500, 65, 10, 500 / kTileRows);
  EXPECT_EQ(even.columns, 65);
  EXPECT_EQ(even.rows, 256);
  EXPECT_LT(even_blocks(plain, 512, 80, 10, 8).rows, 512);
  EXPECT_EQ(even_blocks({1, 512, 64}, 512, 512, 10, 8).rows, 512) << "these are even already";
}

TEST(ProductBlocksTest, OfAnOddNumberOfPanelsAreSharedEvenly) {
  for (const std::int64_t columns : {130, 192, 320, 555}) {
    const Block even = even_blocks({1, 450, 64}, 450, columns, 20, 7);
    EXPECT_LT(unevenness(even, 450, columns), 1.15) << columns;
  }
}

// Each core begins with half of the blocks, in their order.
TEST(ProductBlocksTest, ATailAtTheEndIsNotWhatBothWaitFor) {
  EXPECT_EQ(two_cores_time({1, 92, 64}, 92, 256), 2 * 100 * 64);
  EXPECT_EQ(two_cores_time({1, 92, 64}, 92, 192), 2 * 100 * 64);
  EXPECT_EQ(two_cores_time({1, 92, 64}, 92, 65), 100 * 64);
}

Problem<float> product_of(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  Problem<float> problem;
  problem.result.first = {nullptr, rows, columns, columns, 1};
  problem.left.first = {nullptr, rows, inner, inner, 1};
  problem.right.first = {nullptr, inner, columns, columns, 1};
  return problem;
}

TEST(ProductBlocksTest, AreRowsWhereFewColumnsAreUsedInPlace) {
  const Block pixels = block_of(product_of(576, 196, 96));
  EXPECT_EQ(pixels.columns, 196);
  EXPECT_EQ(576 % pixels.rows, 0);
  EXPECT_EQ(576 / pixels.rows % 2, 0) << "for two cores";
  EXPECT_EQ(block_of(product_of(64, 196, 384)).rows, 64) << "too few to be cut";
}

}  // namespace
}  // namespace loom::ops::detail
