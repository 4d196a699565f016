// SPDX-License-Identifier: BSD-3-Clause
// Philox 4x32-10 against the known answers of Random123 1.14 (tests/kat_vectors), and the tiles
// that kernels read against single blocks.
#include "loom/kernels/rng/philox.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace loom::kernels::rng {
namespace {

using Block = std::array<std::uint32_t, 4>;

struct KnownAnswer {
  Block counter;
  std::array<std::uint32_t, 2> key;
  Block words;
};

TEST(PhiloxTest, GivesTheKnownAnswersOfRandom123) {
  constexpr std::uint32_t kOnes = 0xffffffff;
  const KnownAnswer answers[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{kOnes, kOnes, kOnes, kOnes},
       {kOnes, kOnes},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const KnownAnswer& answer : answers) {
    EXPECT_EQ(philox_4x32_10(answer.counter, answer.key), answer.words);
  }
}

class PhiloxTilesTest : public testing::SimdTest {
 protected:
  static std::vector<std::uint32_t> tiles(PhiloxStream stream, std::uint64_t first,
                                          std::int64_t count) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(count) * kTileWords);
    philox_tiles.of(GetParam())(stream, first, count, words.data());
    return words;
  }

  // Word `index` of the tiles that begin at `counter`, from its definition.
  static std::uint32_t word(std::uint64_t seed, std::uint64_t counter, std::int64_t index) {
    const std::int64_t within = index % kTileWords;
    counter +=
        static_cast<std::uint64_t>(index / kTileWords * kTileCounters + within % kTileCounters);
    return philox_4x32_10(
        {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
        {static_cast<std::uint32_t>(seed),
         static_cast<std::uint32_t>(seed >> 32)})[static_cast<std::size_t>(within / kTileCounters)];
  }
};

LOOM_TEST_SIMD_LEVELS(PhiloxTilesTest);

TEST_P(PhiloxTilesTest, HoldTheBlocksOfTheirCounters) {
  const PhiloxStream stream{0x0123456789abcdef, 4000};
  const auto words = tiles(stream, 0, 3);
  for (std::int64_t i = 0; i < std::int64_t{3} * kTileWords; ++i) {
    ASSERT_EQ(words[i], word(stream.seed, 1000, i)) << i;
  }
}

TEST_P(PhiloxTilesTest, CarryIntoTheUpperHalfOfTheCounter) {
  const PhiloxStream stream{7, 4 * std::uint64_t{0xfffffff8}};
  const auto words = tiles(stream, 0, 2);
  for (std::int64_t i = 0; i < std::int64_t{2} * kTileWords; ++i) {
    ASSERT_EQ(words[i], word(stream.seed, 0xfffffff8, i)) << i;
  }
}

TEST_P(PhiloxTilesTest, ATileDoesNotDependOnWhereReadingBegins) {
  const PhiloxStream stream{42, 64};
  const auto all = tiles(stream, 0, 8);
  const auto last = tiles(stream, 7, 1);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - kTileWords));
}

TEST_P(PhiloxTilesTest, AnOffsetOfOneTileIsTheNextTile) {
  EXPECT_EQ(tiles({42, kTileWords}, 0, 1), tiles({42, 0}, 1, 1));
}

TEST_P(PhiloxTilesTest, DifferentSeedsGiveDifferentWords) {
  EXPECT_NE(tiles({1, 0}, 0, 1), tiles({2, 0}, 0, 1));
  EXPECT_NE(tiles({1, 0}, 0, 1), tiles({1 | std::uint64_t{1} << 32, 0}, 0, 1));
}

}  // namespace
}  // namespace loom::kernels::rng
