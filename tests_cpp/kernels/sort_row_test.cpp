// SPDX-License-Identifier: BSD-3-Clause
// Rows sorted by digits against a stable sort by comparisons.
#include "loom/kernels/sort/sort_row.h"

#include "loom/kernels/sort/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace loom::kernels::sort {
namespace {

// What is not a number is above all others.
template <class T>
bool is_before(T a, T b) {
  return a < b || (a == a && b != b);
}

/// Elements that lie apart, as the bits that keys are made of.
template <class Keys, class T>
struct Sorted {
  using Raw = typename Keys::Raw;
  static constexpr std::int64_t kStep = 3, kValuesStep = 2, kPlacesStep = 5;

  std::vector<Raw> values;
  std::vector<std::int64_t> places;

  Sorted(const std::vector<T>& elements, bool descending, std::int64_t block) {
    const auto count = static_cast<std::int64_t>(elements.size());
    std::vector<Raw> from(elements.size() * kStep), to(elements.size() * kValuesStep);
    std::vector<std::int64_t> origins(elements.size() * kPlacesStep);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      from[i * kStep] = std::bit_cast<Raw>(elements[i]);
    }
    std::vector<std::uint64_t> scratch(static_cast<std::size_t>(scratch_bytes<Keys>(count)) / 8);
    sort_row<Keys>({from.data(), to.data(), origins.data(), count, kStep, kValuesStep, kPlacesStep},
                   descending, block, reinterpret_cast<std::byte*>(scratch.data()),
                   [](std::int64_t blocks, const auto& body) {
                     for (std::int64_t b = blocks; b-- > 0;) body(b);
                   });
    for (std::size_t i = 0; i < elements.size(); ++i) {
      values.push_back(to[i * kValuesStep]);
      places.push_back(origins[i * kPlacesStep]);
    }
  }
};

/// The row as one that is too short for digits.
template <class Keys, class T>
std::vector<std::int64_t> places_of_short_row(const std::vector<T>& elements, bool descending) {
  using Raw = typename Keys::Raw;
  const auto count = static_cast<std::int64_t>(elements.size());
  std::vector<Raw> from(elements.size()), to(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i) from[i] = std::bit_cast<Raw>(elements[i]);
  std::vector<std::int64_t> places(elements.size());
  std::vector<std::uint64_t> scratch(static_cast<std::size_t>(scratch_bytes<Keys>(count)) / 8);
  sort_short_row<Keys>({from.data(), to.data(), places.data(), count, 1, 1, 1}, descending,
                       reinterpret_cast<std::byte*>(scratch.data()));
  for (std::size_t i = 0; i < elements.size(); ++i) {
    EXPECT_EQ(to[i], from[static_cast<std::size_t>(places[i])]);
  }
  return places;
}

template <class Keys, class T>
void expect_sorted(const std::vector<T>& elements) {
  for (const bool descending : {false, true}) {
    std::vector<std::int64_t> places(elements.size());
    std::iota(places.begin(), places.end(), 0);
    std::ranges::stable_sort(places, [&](std::int64_t a, std::int64_t b) {
      const T left = elements[static_cast<std::size_t>(a)];
      const T right = elements[static_cast<std::size_t>(b)];
      return descending ? is_before(right, left) : is_before(left, right);
    });
    const auto merged = places_of_short_row<Keys, T>(elements, descending);
    EXPECT_EQ(merged, places);
    for (const std::int64_t block : {1000, 300, 7}) {
      const Sorted<Keys, T> sorted(elements, descending, block);
      EXPECT_EQ(sorted.places, places) << block;
      for (std::size_t i = 0; i < places.size(); ++i) {
        const T element = elements[static_cast<std::size_t>(places[i])];
        ASSERT_EQ(sorted.values[i], std::bit_cast<typename Keys::Raw>(element)) << i;
      }
    }
  }
}

template <class T>
std::vector<T> integers(std::uint64_t mask) {
  std::mt19937_64 random(7);
  std::vector<T> made(1000);
  for (T& element : made) element = static_cast<T>(random() & mask);
  return made;
}

template <class T>
std::vector<T> floats() {
  std::mt19937_64 random(7);
  std::normal_distribution<T> normal(0, 9);
  std::vector<T> made(1000);
  for (T& element : made) element = std::round(normal(random) * 16) / 16;
  return made;
}

TEST(SortRowTest, IntegersOfEveryWidth) {
  constexpr auto kAll = std::numeric_limits<std::uint64_t>::max();
  expect_sorted<IntegerKeys<std::uint8_t>>(integers<std::uint8_t>(kAll));
  expect_sorted<IntegerKeys<std::int8_t>>(integers<std::int8_t>(kAll));
  expect_sorted<IntegerKeys<std::int16_t>>(integers<std::int16_t>(kAll));
  expect_sorted<IntegerKeys<std::int32_t>>(integers<std::int32_t>(kAll));
  expect_sorted<IntegerKeys<std::int64_t>>(integers<std::int64_t>(kAll));
}

TEST(SortRowTest, WideIntegersOfASmallRange) {
  std::vector<std::int64_t> elements = integers<std::int64_t>(0xf'ffff);
  for (std::int64_t& element : elements) element -= std::int64_t{1} << 40;
  expect_sorted<IntegerKeys<std::int64_t>>(elements);
}

TEST(SortRowTest, ElementsThatAreAllTheSame) {
  expect_sorted<IntegerKeys<std::int32_t>>(std::vector<std::int32_t>(1000, -3));
  expect_sorted<FloatKeys32>(std::vector<float>(1, 2));
}

TEST(SortRowTest, RowsOfEveryShortLength) {
  const std::vector<float> all = floats<float>();
  for (std::ptrdiff_t count = 1; count < 70; ++count) {
    expect_sorted<FloatKeys32>(std::vector<float>(all.begin(), all.begin() + count));
  }
}

TEST(SortRowTest, Floats) {
  expect_sorted<FloatKeys32>(floats<float>());
  expect_sorted<FloatKeys64>(floats<double>());
}

// Zeros are equal and so is what is not a number, but each keeps its bits.
TEST(SortRowTest, FloatsWithZerosOfBothSignsAndNoNumbers) {
  std::vector<float> narrow = floats<float>();
  std::vector<double> wide = floats<double>();
  for (std::size_t i = 0; i + 1 < narrow.size(); i += 9) {
    narrow[i] = i % 2 != 0 ? -0.0F : 0.0F;
    wide[i] = -narrow[i];
    narrow[i + 1] = i % 4 != 0 ? std::nanf("3") : -std::nanf("5");
    wide[i / 2] = std::nan("7");
  }
  expect_sorted<FloatKeys32>(narrow);
  expect_sorted<FloatKeys64>(wide);
}

template <class T>
void expect_rows_in_order(const std::vector<std::array<T, 3>>& rows,
                          const std::vector<std::int64_t>& expected) {
  std::vector<std::int64_t> order(rows.size());
  order_rows(rows.front().data(), std::ssize(rows), 3, order.data());
  EXPECT_EQ(order, expected);
}

TEST(RowOrderTest, TheFirstElementsThatDifferDecide) {
  expect_rows_in_order<std::int8_t>({{2, 0, 0}, {1, 2, 3}, {1, 2, -3}, {-1, 9, 9}}, {3, 2, 1, 0});
  expect_rows_in_order<float>({{0, 1, 2}, {-0.F, 1, 1}, {0, -1, 7}}, {2, 1, 0});
  const auto half = [](float x) {
    simd::Half made;
    simd::round_to(made, x);
    return made;
  };
  expect_rows_in_order<simd::Half>(
      {{half(1), half(2), half(3)}, {half(1), half(-2), half(3)}, {half(-1), half(0), half(0)}},
      {2, 1, 0});
}

}  // namespace
}  // namespace loom::kernels::sort
