// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/ceil_div.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace loom {
namespace {

TEST(CeilDivTest, CountsThePartThatIsNotFull) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(1, 4), 1);
  EXPECT_EQ(ceil_div(4, 4), 1);
  EXPECT_EQ(ceil_div(5, 4), 2);
  EXPECT_LE(ceil_div(-5, 4), 0);
}

TEST(CeilDivTest, RoundsUpToAMultiple) {
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 64), 128);
}

TEST(CeilDivTest, TakesTheWiderTypeOfTwo) {
  static_assert(std::is_same_v<decltype(ceil_div(std::int64_t{1}, 1)), std::int64_t>);
  static_assert(std::is_same_v<decltype(round_up(std::size_t{1}, 1)), std::size_t>);
  EXPECT_EQ(ceil_div((std::int64_t{1} << 40) + 1, 2), (std::int64_t{1} << 39) + 1);
}

}  // namespace
}  // namespace loom
