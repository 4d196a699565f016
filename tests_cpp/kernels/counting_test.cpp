// SPDX-License-Identifier: BSD-3-Clause
// Elements that are counted, weighed, repeated and looked for.
#include "loom/kernels/index/counting.h"

#include "loom/kernels/index/members.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace loom::kernels::index {
namespace {

TEST(CountingTest, LeastAndMostAreThoseOfTheRange) {
  const std::array<std::int16_t, 5> elements{-900, 3, -7, 5, 800};
  const auto [least, most] = least_and_most(elements.data(), 1, 4);
  EXPECT_EQ(least, -7);
  EXPECT_EQ(most, 5);
}

TEST(CountingTest, CountsAddUp) {
  const std::array<std::uint8_t, 6> which{2, 0, 2, 255, 1, 2};
  std::vector<std::int64_t> bins(256);
  count_into(bins.data(), which.data(), 0, 4);
  count_into(bins.data(), which.data(), 4, 6);
  for (std::size_t b = 0; b < bins.size(); ++b) {
    EXPECT_EQ(bins[b], std::ranges::count(which, b)) << b;
  }
}

TEST(CountingTest, WeightsAreAddedInTheOrderOfTheElements) {
  const std::array<std::int32_t, 4> which{1, 1, 0, 1};
  const std::array<float, 4> weights{0x1p24F, 1, 3, 1};  // each 1 is lost
  std::array<float, 2> bins{};
  weigh_into(bins.data(), which.data(), weights.data(), 4);
  EXPECT_EQ(bins, (std::array<float, 2>{3, 0x1p24F}));
}

TEST(CountingTest, NumbersAreRepeatedUpToTheirEnds) {
  const std::array<std::int32_t, 4> times{2, 0, 3, 1};
  const std::array<std::int64_t, 4> ends{2, 2, 5, 6};
  std::array<std::int32_t, 6> to{};
  EXPECT_TRUE(repeat_numbers(to.data(), 6, times.data(), ends.data(), 2, 4));
  EXPECT_TRUE(repeat_numbers(to.data(), 6, times.data(), ends.data(), 0, 2));
  EXPECT_EQ(to, (std::array<std::int32_t, 6>{0, 0, 2, 2, 2, 3}));
}

TEST(CountingTest, RepeatsThatDoNotFitAreRefused) {
  std::array<std::int64_t, 3> to{7, 7, 7};
  const auto repeat = [&](std::int64_t times, std::int64_t end) {
    return repeat_numbers(to.data(), 3, &times, &end, 0, 1);
  };
  EXPECT_FALSE(repeat(-1, 2));
  EXPECT_FALSE(repeat(3, 2));
  EXPECT_FALSE(repeat(1, 4));
  EXPECT_EQ(to, (std::array<std::int64_t, 3>{7, 7, 7}));
  EXPECT_TRUE(repeat(0, 0));
}

template <class T, class Set>
void expect_members(const std::vector<T>& elements, const std::vector<T>& among, const Set& set) {
  const auto found = std::make_unique<bool[]>(elements.size());
  for (const bool invert : {false, true}) {
    const auto count = std::ssize(elements), middle = count / 3;
    find_members(found.get(), elements.data(), set, invert, middle, count);
    find_members(found.get(), elements.data(), set, invert, 0, middle);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const bool there = std::ranges::find(among, elements[i]) != among.end();
      EXPECT_EQ(found[i], there != invert) << elements[i];
    }
  }
}

template <class T>
std::vector<T> some(std::size_t count, T least, T most) {
  std::mt19937_64 random(count);
  std::vector<T> made(count);
  for (T& x : made) {
    x = static_cast<T>(least + static_cast<T>(random() % static_cast<std::uint64_t>(most - least)));
  }
  return made;
}

TEST(MembersTest, BisectionFindsWhatALoopFinds) {
  const auto elements = some<std::int64_t>(300, -200, 200);
  for (const std::size_t count : {0, 1, 2, 3, 7, 8, 9, 100}) {
    const auto among = some<std::int64_t>(count, -200, 200);
    expect_members(elements, among, SortedSet(among.data(), std::ssize(among)));
  }
}

TEST(MembersTest, NoNumberIsAmongOthersAndZerosAreEqual) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> elements{kNan, 0, -0.F, 1, 2}, among{2, kNan, -0.F, kNan};
  expect_members(elements, among, SortedSet(among.data(), 4));
  const std::vector<float> none{kNan};
  expect_members(elements, none, SortedSet(none.data(), 1));
}

TEST(MembersTest, TablesFindWhatALoopFinds) {
  const auto elements = some<std::int16_t>(300, -200, 200), among = some<std::int16_t>(50, -90, 9);
  const auto [least, most] = least_and_most(among.data(), 0, 50);
  expect_members(elements, among,
                 TableSet(among.data(), 50, least, static_cast<std::uint64_t>(most - least)));
}

TEST(MembersTest, TablesAtTheEndsOfAType) {
  using Limits = std::numeric_limits<std::int64_t>;
  const std::vector<std::int64_t> elements{Limits::min(), -1, 0, 1, Limits::max()};
  const std::vector<std::int64_t> low{Limits::min()}, high{Limits::max() - 1, Limits::max()};
  expect_members(elements, low, TableSet(low.data(), 1, low[0], 0));
  expect_members(elements, high, TableSet(high.data(), 2, high[0], 1));
}

}  // namespace
}  // namespace loom::kernels::index
