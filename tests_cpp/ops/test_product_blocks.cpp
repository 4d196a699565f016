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

TEST(ProductBlocksTest, OfPanelsMadeForAllAreHalvesOfRowsWhereColumnsAreNoEvenShares) {
  const auto product = [](std::int64_t columns, const c10::BFloat16* panels) {
    Problem<c10::BFloat16> problem;
    problem.result.first = {nullptr, 128, columns, columns, 1};
    problem.left.first = {nullptr, 128, 1000, 1000, 1};
    problem.right.first = {nullptr, 1000, columns, columns, 1};
    problem.panels = panels;
    return problem;
  };
  const c10::BFloat16 panels[1] = {};
  EXPECT_EQ(block_of(product(320, panels)).rows, 64) << "five panels";
  EXPECT_EQ(block_of(product(384, panels)).rows, 128) << "six";
  EXPECT_EQ(block_of(product(320, nullptr)).rows, 128) << "each block packs its columns";
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
