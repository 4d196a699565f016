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
