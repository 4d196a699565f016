// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/sort/radix.h"

#include "loom/kernels/sort/keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace loom::kernels::sort {
namespace {

template <class Item>
void expect_sorted(std::uint64_t mask, std::int64_t block) {
  std::mt19937_64 random(7);
  std::vector<Item> items(1000), spare(1000);
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i] = make_item(Item{}, random() & mask, static_cast<std::int64_t>(i));
  }
  std::vector<Item> expected = items;
  std::ranges::stable_sort(expected, {}, [](const Item& item) { return key_of(item); });
  const auto run = [](std::int64_t blocks, const auto& body) {
    for (std::int64_t b = blocks; b-- > 0;) body(b);
  };
  const Item* const sorted =
      sort_items(items.data(), spare.data(), ItemBlocks{1000, block}, mask, run);
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(key_of(sorted[i]), key_of(expected[i])) << i;
    EXPECT_EQ(place_of(sorted[i]), place_of(expected[i])) << i;
  }
}

TEST(RadixTest, EqualKeysStayInOrderHoweverItemsAreCut) {
  for (const std::int64_t block : {1000, 300, 7}) {
    expect_sorted<NarrowItem>(0xf, block);
    expect_sorted<NarrowItem>(0xffff'ffff, block);
    expect_sorted<WideItem>(~std::uint64_t{0}, block);
    expect_sorted<WideItem>(0xff00'0000'0000'0ff0, block);
  }
}

TEST(SortKeysTest, OrderOfFloatsIsThatOfTheirKeys) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> rising{-kInfinity, -3e38F, -1, -1e-45F, 0, 1e-45F, 2, 3e38F, kInfinity};
  const auto key = [](float x) { return FloatKeys32::encode(std::bit_cast<std::uint32_t>(x)); };
  for (std::size_t i = 1; i < rising.size(); ++i) EXPECT_LT(key(rising[i - 1]), key(rising[i]));
  for (const float x : rising) {
    EXPECT_EQ(FloatKeys32::decode(key(x)), std::bit_cast<std::uint32_t>(x)) << x;
    EXPECT_FALSE(FloatKeys32::loses(std::bit_cast<std::uint32_t>(x))) << x;
  }
  EXPECT_EQ(key(-0.0F), key(0.0F));
  EXPECT_EQ(key(std::nanf("")), key(-std::nanf("3")));
  EXPECT_GT(key(-std::nanf("")), key(kInfinity));
  EXPECT_TRUE(FloatKeys32::loses(std::bit_cast<std::uint32_t>(-0.0F)));
  EXPECT_TRUE(FloatKeys32::loses(std::bit_cast<std::uint32_t>(std::nanf(""))));
}

TEST(SortKeysTest, OrderOfIntegersIsThatOfTheirKeys) {
  using Keys = IntegerKeys<std::int16_t>;
  for (int x = -32768; x < 32767; ++x) {
    EXPECT_LT(Keys::encode(static_cast<std::int16_t>(x)),
              Keys::encode(static_cast<std::int16_t>(x + 1)));
    EXPECT_EQ(Keys::decode(Keys::encode(static_cast<std::int16_t>(x))), x);
  }
  EXPECT_EQ(IntegerKeys<std::uint8_t>::encode(200), 200);
}

}  // namespace
}  // namespace loom::kernels::sort
