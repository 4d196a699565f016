// SPDX-License-Identifier: BSD-3-Clause
// Elements that are chosen, and runs of equal ones, block by block against loops over all of them.
#include "loom/kernels/index/chosen.h"

#include "loom/kernels/index/equal_runs.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <vector>

namespace loom::kernels::index {
namespace {

constexpr std::int64_t kCount = 500, kBlock = 64;

/// Calls body(begin, end) for all blocks, the last one first, as any core may have any of them.
template <class Body>
void in_blocks(const Body& body) {
  for (std::int64_t b = (kCount - 1) / kBlock; b >= 0; --b) {
    body(b * kBlock, std::min(kCount, (b + 1) * kBlock));
  }
}

/// A share of `count` bytes is not zero.
std::vector<std::uint8_t> bytes(float share) {
  const auto numbers = testing::numbers(kCount, 3);
  std::vector<std::uint8_t> made(numbers.size());
  std::ranges::transform(numbers, made.begin(),
                         [share](float x) { return std::abs(x) < share ? 2 : 0; });
  return made;
}

std::vector<std::int64_t> places_of(const std::vector<std::uint8_t>& chosen) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < kCount; ++i) {
    if (chosen[static_cast<std::size_t>(i)] != 0) places.push_back(i);
  }
  return places;
}

class ChosenTest : public ::testing::TestWithParam<float> {};
INSTANTIATE_TEST_SUITE_P(Shares, ChosenTest, ::testing::Values(0.F, 0.02F, 0.5F, 1.F));

TEST_P(ChosenTest, BlocksWriteTheirPartsAndNothingBeyond) {
  const auto chosen = bytes(GetParam());
  const auto expected = places_of(chosen);
  const Nonzero<std::uint8_t> test{chosen.data()};
  std::vector<std::int64_t> written(expected.size() + 1, -1);
  in_blocks([&](std::int64_t begin, std::int64_t end) {
    const std::int64_t row = count_chosen(test, 0, begin), count = count_chosen(test, begin, end);
    write_chosen(test, begin, row, row + count,
                 [&](std::int64_t r, std::int64_t i) { written[static_cast<std::size_t>(r)] = i; });
  });
  EXPECT_EQ(written.back(), -1);
  written.pop_back();
  EXPECT_EQ(written, expected);
}

TEST_P(ChosenTest, CoordinatesAreThoseOfTheirPlaces) {
  constexpr std::array<std::int64_t, 3> kSizes{5, 20, 5};  // blocks begin anywhere
  constexpr std::int64_t kRowStep = 4;
  const auto chosen = bytes(GetParam());
  const Nonzero<std::uint8_t> test{chosen.data()};
  const auto places = places_of(chosen);
  std::vector<std::int64_t> written(places.size() * kRowStep, -1), expected;
  for (const std::int64_t place : places) {
    expected.insert(expected.end(), {place / 100, place / 5 % 20, place % 5, -1});
  }
  in_blocks([&](std::int64_t begin, std::int64_t end) {
    const std::int64_t row = count_chosen(test, 0, begin), count = count_chosen(test, begin, end);
    Coordinates(written.data(), kRowStep, 1, kSizes, begin)
        .write(test, begin, end, row, row + count);
  });
  EXPECT_EQ(written, expected);
}

TEST(NonzeroTest, SignsOfZerosAndPartsOfPairsDoNotCount) {
  constexpr std::uint32_t kMagnitude = 0x7fff'ffff;
  const std::array<std::uint32_t, 6> words{0, 0x8000'0000, 0x8000'0000, 1, 0x8000'0001, 0};
  EXPECT_EQ(count_chosen(Nonzero<std::uint32_t>{words.data()}, 0, 6), 4);
  EXPECT_EQ(count_chosen(Nonzero<std::uint32_t, 1, kMagnitude>{words.data()}, 0, 6), 2);
  EXPECT_EQ(count_chosen(Nonzero<std::uint32_t, 2, kMagnitude>{words.data()}, 0, 3), 2);
}

template <class T>
struct RunsTest : ::testing::Test {
  static T make(int value) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(value);
    } else {
      T made;
      simd::round_to(made, static_cast<float>(value));
      return made;
    }
  }
  /// Runs of some elements each; what is not a number is a run of its own.
  static std::vector<T> elements() {
    std::vector<T> made;
    for (int value = 0; std::ssize(made) < kCount; ++value) {
      made.insert(made.end(), static_cast<std::size_t>(value * 7 % 11 * (value % 9)),
                  make(value % 5));
    }
    made.resize(static_cast<std::size_t>(kCount));
    if constexpr (!std::is_integral_v<T>) {
      simd::round_to(made[0], std::nanf(""));
      for (const std::size_t i : {200, 201, 499}) made[i] = made[0];
      simd::round_to(made[300], 0.0F);
      simd::round_to(made[301], -0.0F);
    }
    return made;
  }
};
using RunTypes =
    ::testing::Types<std::uint8_t, std::int64_t, float, double, simd::Half, simd::BFloat16>;
TYPED_TEST_SUITE(RunsTest, RunTypes);

TYPED_TEST(RunsTest, ValuesStartsLengthsAndNumbersAreThoseOfALoop) {
  const auto elements = this->elements();
  const auto differ = [&](std::size_t i) {
    return comparable(elements[i]) != comparable(elements[i - 1]);
  };
  std::vector<std::int64_t> starts{0}, numbers(elements.size());
  for (std::size_t i = 1; i < elements.size(); ++i) {
    if (differ(i)) starts.push_back(static_cast<std::int64_t>(i));
    numbers[i] = std::ssize(starts) - 1;
  }

  const Runs runs(elements.data());
  std::vector<std::int64_t> found_starts(starts.size()), found(elements.size()), order, back(found);
  std::vector<TypeParam> values(starts.size());
  for (std::int64_t i = 0; i < kCount; ++i) order.push_back(kCount - 1 - i);
  in_blocks([&](std::int64_t begin, std::int64_t end) {
    const std::int64_t run = begin == 0 ? 0 : runs.count(0, begin), count = runs.count(begin, end);
    runs.write(begin, run, run + count, values.data(), found_starts.data());
    runs.number(begin, end, run, nullptr, found.data());
    runs.number(begin, end, run, order.data(), back.data());
  });
  EXPECT_EQ(found_starts, starts);
  EXPECT_EQ(found, numbers);
  EXPECT_EQ(back, std::vector(numbers.rbegin(), numbers.rend()));
  const auto bytes = [](TypeParam x) { return std::bit_cast<std::array<char, sizeof x>>(x); };
  for (std::size_t r = 0; r < starts.size(); ++r) {
    EXPECT_EQ(bytes(values[r]), bytes(elements[static_cast<std::size_t>(starts[r])]));
  }
  lengths_of_runs(found_starts.data(), std::ssize(starts), kCount);
  starts.push_back(kCount);
  for (std::size_t r = 0; r + 1 < starts.size(); ++r) {
    EXPECT_EQ(found_starts[r], starts[r + 1] - starts[r]);
  }
}

}  // namespace
}  // namespace loom::kernels::index
