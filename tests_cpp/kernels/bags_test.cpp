// SPDX-License-Identifier: BSD-3-Clause
// Bags of embeddings and sums of listed rows against loops over single elements.
#include "loom/kernels/index/bags.h"

#include "loom/kernels/index/bag_gradients.h"
#include "loom/kernels/index/listed_sums.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace loom::kernels::index {
namespace {

using simd::BFloat16;
using simd::Half;

constexpr std::int64_t kPadding = 3, kTableRows = 9, kColumns = 21;

/// Four bags, of which the second is empty and the last has nothing but padding.
template <class Index>
struct SomeBags {
  std::array<Index, 9> indices{4, 3, 8, 4, 0, 3, 7, 3, 3};
  std::array<Index, 5> offsets{0, 3, 3, 7, 9};

  [[nodiscard]] Bags<Index> all(std::int64_t padding) const {
    return {indices.data(), offsets.data(), 4, 9, padding};
  }
  /// The places of a bag that count.
  [[nodiscard]] std::vector<std::int64_t> places(std::size_t bag, std::int64_t padding) const {
    std::vector<std::int64_t> counted;
    for (Index i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      if (indices[static_cast<std::size_t>(i)] != padding) counted.push_back(i);
    }
    return counted;
  }
};

template <class Index>
struct BagsTest : ::testing::Test, SomeBags<Index> {};
using IndexTypes = ::testing::Types<std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(BagsTest, IndexTypes);

TYPED_TEST(BagsTest, FitIfEachBeginsWhereTheOneBeforeEnds) {
  EXPECT_TRUE(this->all(-1).fit(/*has_last=*/true));
  EXPECT_EQ(this->all(-1).first_misplaced(), 4);
  this->offsets[4] = 8;
  EXPECT_TRUE(this->all(-1).fit(/*has_last=*/false));
  EXPECT_FALSE(this->all(-1).fit(/*has_last=*/true));
  this->offsets[2] = 2;  // behind which bag 1 begins
  EXPECT_EQ(this->all(-1).first_misplaced(), 1);
  EXPECT_FALSE(this->all(-1).fit(/*has_last=*/false));
  this->offsets[2] = 3;
  this->offsets[3] = 10;
  EXPECT_EQ(this->all(-1).first_misplaced(), 2);
  this->offsets = {1, 3, 3, 7, 9};
  EXPECT_EQ(this->all(-1).first_misplaced(), 4);
  EXPECT_FALSE(this->all(-1).fit(/*has_last=*/false));
  this->offsets[0] = -1;
  EXPECT_EQ(this->all(-1).first_misplaced(), 0);
}

TYPED_TEST(BagsTest, PlacesHaveTheNamesOfTheirBags) {
  std::vector<std::int16_t> names(9);
  name_bags(this->all(-1), 2, 4, names.data());
  name_bags(this->all(-1), 0, 2, names.data());
  EXPECT_EQ(names, (std::vector<std::int16_t>{0, 0, 0, 2, 2, 2, 2, 3, 3}));
}

TYPED_TEST(BagsTest, SizesAreHowManyPlacesCount) {
  std::array<TypeParam, 5> sizes{9, 9, 9, 9, 9};
  write_sizes(this->all(-1), 1, 4, sizes.data());
  EXPECT_EQ(sizes, (std::array<TypeParam, 5>{9, 0, 4, 2, 9}));
  write_sizes(this->all(kPadding), 0, 4, sizes.data());
  EXPECT_EQ(sizes, (std::array<TypeParam, 5>{2, 0, 3, 0, 9}));
}

TYPED_TEST(BagsTest, CountedPlacesLeavePaddingOut) {
  const auto scale = testing::elements<BFloat16>(9, 1);
  for (const std::int64_t padding : {std::int64_t{-1}, kPadding}) {
    const CountedPlaces<TypeParam> counted(this->all(padding), 1, 4, scale.data());
    std::vector<TypeParam> starts{0}, kept;
    std::vector<float> factors;
    for (const std::size_t bag : {1, 2, 3}) {
      for (const std::int64_t place : this->places(bag, padding)) {
        kept.push_back(this->indices[static_cast<std::size_t>(place)]);
        factors.push_back(simd::widen(scale[static_cast<std::size_t>(place)]));
      }
      starts.push_back(static_cast<TypeParam>(kept.size()));
    }
    EXPECT_EQ(counted.starts(), starts);
    EXPECT_EQ(std::vector(counted.indices(), counted.indices() + kept.size()), kept);
    EXPECT_EQ(std::vector(counted.factors(), counted.factors() + factors.size()), factors);
  }
}

TYPED_TEST(BagsTest, CountedPlacesWithoutScaleHaveNoFactors) {
  const CountedPlaces<TypeParam> counted(this->all(kPadding), 0, 4,
                                         static_cast<const float*>(nullptr));
  EXPECT_EQ(counted.factors(), nullptr);
  EXPECT_EQ(counted.starts(), (std::vector<TypeParam>{0, 2, 2, 5, 5}));
}

TYPED_TEST(BagsTest, IndicesOfNoRowHaveNoMaxima) {
  std::vector<float> table(kTableRows), maxima(4);
  std::vector<TypeParam> of_rows(4);
  const auto all_there = [&] {
    return bag_maxima<float>(this->all(kPadding), 0, 4, {table.data(), 1, 1}, kTableRows,
                             {maxima.data(), 1, 1}, {of_rows.data(), 1, 1});
  };
  EXPECT_TRUE(all_there());
  this->indices[2] = kTableRows;
  EXPECT_FALSE(all_there());
  this->indices[2] = -1;
  EXPECT_FALSE(all_there());
}

/// Rows of elements of any type.
template <class T>
struct RowsOfBagsTest : ::testing::Test {
  SomeBags<std::int64_t> bags;
  std::vector<T> table = testing::elements<T>(kTableRows * kColumns, 2);

  static T rounded(float value) {
    T made;
    simd::round_to(made, value);
    return made;
  }
  static void expect_equal(const std::vector<T>& made, const std::vector<T>& expected) {
    ASSERT_EQ(made.size(), expected.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(simd::widen(made[i]), simd::widen(expected[i])) << i;
    }
  }
};
using ElementTypes = ::testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(RowsOfBagsTest, ElementTypes);

TYPED_TEST(RowsOfBagsTest, RowsAreDividedByTheRoundedSizes) {
  const std::vector<std::int32_t> starts{0, 7, 7, 8, 1033};  // of which 1025 is no bfloat16
  auto made = this->table, expected = this->table;
  made.resize(4 * kColumns);
  expected.resize(4 * kColumns);
  divide_by_sizes(RowColumns<TypeParam>{made.data() + 1, kColumns, kColumns - 2}, starts);
  for (const std::size_t row : {0, 3}) {
    const auto size = static_cast<float>(starts[row + 1] - starts[row]);
    for (std::size_t c = 1; c < kColumns - 1; ++c) {
      TypeParam& element = expected[row * kColumns + c];
      element = this->rounded(simd::widen(element) / simd::widen(this->rounded(size)));
    }
  }
  this->expect_equal(made, expected);
}

TYPED_TEST(RowsOfBagsTest, MaximaAreTheFirstLargestElementsOfEachColumn) {
  for (auto& element : this->table) {
    element = this->rounded(std::round(2 * simd::widen(element)));  // many are equal
  }
  for (const std::int64_t padding : {std::int64_t{-1}, kPadding}) {
    std::vector<TypeParam> maxima(4 * kColumns), expected = maxima;
    std::vector<std::int64_t> of_rows(maxima.size(), -1), expected_rows(maxima.size(), 0);
    for (std::size_t bag = 0; bag < 4; ++bag) {
      for (std::size_t c = 0; c < kColumns; ++c) {
        std::optional<std::int64_t> best;
        const auto value = [&](std::int64_t row) {
          return simd::widen(this->table[static_cast<std::size_t>(row * kColumns) + c]);
        };
        for (const std::int64_t place : this->bags.places(bag, padding)) {
          const std::int64_t row = this->bags.indices[static_cast<std::size_t>(place)];
          if (!best || value(row) > value(*best)) best = row;
        }
        if (!best) continue;
        expected[bag * kColumns + c] = this->rounded(value(*best));
        expected_rows[bag * kColumns + c] = *best;
      }
    }
    for (const std::int64_t column : {0, 16}) {  // blocks of columns and of bags
      for (const std::int64_t bag : {0, 2}) {
        const std::int64_t width = column == 0 ? 16 : kColumns - 16;
        EXPECT_TRUE(bag_maxima<TypeParam>(this->bags.all(padding), bag, bag + 2,
                                          {this->table.data() + column, kColumns, width},
                                          kTableRows, {maxima.data() + column, kColumns, width},
                                          {of_rows.data() + column, kColumns, width}));
      }
    }
    this->expect_equal(maxima, expected);
    EXPECT_EQ(of_rows, expected_rows);
  }
}

TYPED_TEST(RowsOfBagsTest, GradientsOfMaximaAreAddedWhereTheyWereFound) {
  const auto gradient = testing::elements<TypeParam>(4 * kColumns, 3);
  std::vector<std::int32_t> of_rows(gradient.size());
  for (std::size_t i = 0; i < of_rows.size(); ++i) {
    of_rows[i] = static_cast<std::int32_t>(i * 5 % 7 % kTableRows);
  }
  const std::array<std::int32_t, 4> sizes{2, 0, 3, 1};
  std::vector<TypeParam> made = this->table, expected(made.size(), this->rounded(0));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    if (sizes[i / kColumns] == 0) continue;
    TypeParam& sum = expected[static_cast<std::size_t>(of_rows[i]) * kColumns + i % kColumns];
    sum = this->rounded(simd::widen(sum) + simd::widen(gradient[i]));
  }
  const MaximaGradients<TypeParam, std::int32_t> gradients{
      made.data(), gradient.data(), of_rows.data(), sizes.data(), kTableRows, 4, kColumns};
  gradients.add(8, kColumns);
  gradients.add(0, 8);
  this->expect_equal(made, expected);
}

TYPED_TEST(RowsOfBagsTest, ListedRowsAreSummedInFloatAndRoundedOnce) {
  constexpr std::int64_t kBags = 4;
  const auto rows = testing::elements<TypeParam>(kBags * kColumns, 4);
  const auto factors = testing::numbers(9, 5);
  std::vector<std::int64_t> bag_of(9);
  name_bags(this->bags.all(-1), 0, kBags, bag_of.data());
  const RowLists lists = lists_of(this->bags.indices, 9, kTableRows, kPadding);
  ListedSums<TypeParam> sums(lists, {rows.data(), kColumns, bag_of.data(), factors.data()});
  for (std::int64_t row = 0; row < kTableRows; ++row) {
    std::vector<double> expected(kColumns);
    for (std::size_t i = 0; i < 9; ++i) {
      if (this->bags.indices[i] != row || row == kPadding) continue;
      for (std::size_t c = 0; c < kColumns; ++c) {
        const auto at = static_cast<std::size_t>(bag_of[i] * kColumns) + c;
        expected[c] += double{factors[i]} * testing::exact(rows[at]);
      }
    }
    std::vector<TypeParam> made(kColumns, this->rounded(9));
    sums.write(row, 0, 16, made.data());
    sums.write(row, 16, kColumns, made.data() + 16);
    for (std::size_t c = 0; c < kColumns; ++c) {
      EXPECT_NEAR(testing::exact(made[c]), expected[c],
                  0x1p-22 + testing::rounding_of<TypeParam>(expected[c]));
    }
  }
}

TYPED_TEST(RowsOfBagsTest, SumsOfNegativeZerosAreZero) {
  const std::vector<TypeParam> rows(2 * kColumns, this->rounded(-0.0F));
  const RowLists lists = lists_of(std::array{0, 0}, 2, 2, -1);
  std::vector<TypeParam> made(kColumns);
  for (const std::int64_t row : {0, 1}) {
    ListedSums<TypeParam>(lists, {rows.data(), kColumns}).write(row, 0, kColumns, made.data());
    for (const TypeParam element : made) EXPECT_FALSE(std::signbit(simd::widen(element)));
  }
}

TYPED_TEST(RowsOfBagsTest, ListedRowsAreAddedToWhatIsThere) {
  const auto rows = testing::elements<TypeParam>(3 * kColumns, 6);
  const auto& before = this->table;
  auto made = before;
  const RowLists lists = lists_of(std::array{1, 1, 1}, 3, 2, -1);
  ListedSums<TypeParam> sums(lists, {rows.data(), kColumns});
  for (const std::int64_t row : {0, 1}) {
    sums.add(row, 5, kColumns, made.data() + row * kColumns + 5);
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    const std::size_t c = i % kColumns;
    double expected = testing::exact(before[i]);
    if (i / kColumns == 1 && c >= 5) {
      for (const std::size_t row : {0, 1, 2}) expected += testing::exact(rows[row * kColumns + c]);
    }
    EXPECT_NEAR(testing::exact(made[i]), expected,
                0x1p-22 + testing::rounding_of<TypeParam>(expected));
  }
}

TEST(BagGradientsTest, FactorsAreDividedByTheSizesOfTheirBags) {
  std::vector<float> factors{6, 5, 4, 3};
  const std::array<std::int64_t, 4> bag_of{2, 0, 2, 1};
  const std::array<std::int32_t, 3> sizes{0, 1, 2};
  divide_factors(factors, bag_of.data(), sizes.data());
  EXPECT_EQ(factors, (std::vector<float>{3, 5, 2, 3}));
}

}  // namespace
}  // namespace loom::kernels::index
