// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/product_blocks.h"

#include <gtest/gtest.h>

namespace loom::ops::detail {
namespace {

TEST(ProductBlocksTest, AreAsWideAsTwoCoresShareEvenly) {
  EXPECT_EQ(even_width(196, 64, 1), 48) << "planes of 14 x 14: four blocks and a rest";
  EXPECT_EQ(even_width(196, 64, 3), 48);
}

TEST(ProductBlocksTest, AreNoNarrowerThanThatNeeds) {
  EXPECT_EQ(even_width(256, 64, 1), 64);
  EXPECT_EQ(even_width(784, 64, 1), 64) << "twelve blocks and a rest";
  EXPECT_EQ(even_width(128, 64, 5), 64);
}

}  // namespace
}  // namespace loom::ops::detail
