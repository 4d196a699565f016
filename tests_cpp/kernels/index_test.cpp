// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/index/elements.h"
#include "loom/kernels/index/row_lists.h"
#include "loom/kernels/index/rows.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace loom::kernels::index {
namespace {

std::int64_t elements_of(const Lines& lines) { return lines.outer * lines.items * lines.inner; }

/// How often the parts write each element.
std::vector<int> times_written(const Lines& lines, const Parts& parts) {
  std::vector<int> times(static_cast<std::size_t>(elements_of(lines)));
  for (std::int64_t i = 0; i < parts.count(); ++i) {
    const Part part = parts.at(i);
    for (std::int64_t o = part.outer_begin; o < part.outer_end; ++o) {
      for (std::int64_t item = part.item_begin; item < part.item_end; ++item) {
        for (std::int64_t c = part.column_begin; c < part.column_end; ++c) {
          ++times[static_cast<std::size_t>((o * lines.items + item) * lines.inner + c)];
        }
      }
    }
  }
  return times;
}

TEST(IndexedPartsTest, EveryElementIsWrittenByOnePart) {
  for (const Lines& lines :
       {Lines{.outer = 900, .items = 70, .inner = 5}, Lines{.outer = 3, .items = 700, .inner = 333},
        Lines{.outer = 1, .items = 9000, .inner = 20}, Lines{.outer = 7, .items = 1, .inner = 1}}) {
    const Parts parts(lines, 3 * elements_of(lines), /*cuts_items=*/true);
    const std::vector<int> once(static_cast<std::size_t>(elements_of(lines)), 1);
    EXPECT_EQ(times_written(lines, parts), once);
  }
}

TEST(IndexedPartsTest, LargeOnesAreCutAlongWhatThereIs) {
  const Lines outer{.outer = 900, .items = 70, .inner = 5};
  const Lines columns{.outer = 1, .items = 70, .inner = 4500};
  const Lines items{.outer = 1, .items = 7000, .inner = 45};
  for (const Lines& lines : {outer, columns, items}) {
    EXPECT_GT(Parts(lines, 630'000, /*cuts_items=*/true).count(), 7);
  }
  EXPECT_EQ(Parts(items, 630'000, /*cuts_items=*/false).count(), 1);
}

TEST(IndexedPartsTest, SmallOnesAndVectorsAreOnePart) {
  const Lines small{.outer = 90, .items = 7, .inner = 5}, vector{.items = 1'000'000};
  EXPECT_EQ(Parts(small, 6000, /*cuts_items=*/true).count(), 1);
  EXPECT_EQ(Parts(vector, 3'000'000, /*cuts_items=*/true).count(), 1);
}

TEST(IndexedPlacesTest, NegativeOnesCountFromTheEndWhereTheyMay) {
  const std::array<std::int32_t, 3> index{2, -1, 0};
  const auto places = Places::of(index.data(), 3, /*items=*/4, /*wraps=*/true);
  ASSERT_TRUE(places.has_value());
  EXPECT_EQ((*places)[1], 3);
  EXPECT_EQ(times_named(*places, 4), (std::vector<std::int64_t>{1, 0, 1, 1}));
  EXPECT_FALSE(Places::of(index.data(), 3, /*items=*/4, /*wraps=*/false).has_value());
  EXPECT_FALSE(Places::of(index.data(), 3, /*items=*/2, /*wraps=*/true).has_value());
}

TEST(IndexedRowsTest, ItemsThatAreNamedTwiceTakeBoth) {
  const Lines lines{.outer = 2, .items = 3, .inner = 2, .count = 2, .supplied = 2};
  const std::array<std::int64_t, 2> index{1, 1};
  const auto places = Places::of(index.data(), 2, lines.items, /*wraps=*/false);
  std::array<float, 12> result{};
  const std::array<float, 8> source{1, 2, 3, 4, 5, 6, 7, 8};
  const Rows<float> rows{result.data(), source.data(), lines, *places, /*cuts_items=*/false};
  rows.combine(Parts(lines, 20, false).at(0), [](float a, float b) { return a + b; });
  EXPECT_EQ(result, (std::array<float, 12>{0, 0, 4, 6, 0, 0, 0, 0, 12, 14, 0, 0}));
}

TEST(IndexedElementsTest, GatherSaysWhetherAllAreThere) {
  const Lines lines{.outer = 2, .items = 3, .inner = 1, .count = 2, .supplied = 2};
  const std::array<int, 6> from{0, 1, 2, 10, 11, 12};
  std::array<std::int64_t, 4> index{2, 0, 1, 1};
  std::array<int, 4> to{};
  EXPECT_TRUE(gather_range(to.data(), from.data(), index.data(), lines, 0, 4));
  EXPECT_EQ(to, (std::array<int, 4>{2, 0, 11, 11}));
  index[3] = 3;
  EXPECT_FALSE(gather_range(to.data(), from.data(), index.data(), lines, 0, 4));
}

TEST(IndexedElementsTest, ScatterWritesInTheOrderOfTheIndex) {
  const Lines lines{.outer = 1, .items = 2, .inner = 2, .count = 3, .supplied = 3};
  const std::array<std::int64_t, 6> index{0, 1, 0, 0, 1, 1};
  const std::array<int, 6> source{1, 2, 3, 4, 5, 6};
  std::array<int, 4> to{};
  const auto copy = [&](int& element, std::int64_t i) {
    element = source[static_cast<std::size_t>(i)];
  };
  EXPECT_TRUE(scatter_part(to.data(), index.data(), lines, Parts(lines, 10, false).at(0), copy));
  EXPECT_EQ(to, (std::array<int, 4>{3, 4, 5, 6}));
}

TEST(ListedSumsTest, RowsThatAreNotThereAndThePaddingAreIgnored) {
  const std::array<std::int32_t, 6> index{2, 0, 7, 2, -1, 1};
  const std::array<float, 12> grads{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::array<float, 6> sums{};
  const ListedSums all{sums.data(), grads.data(), 2,
                       lists_of(index.data(), 6, /*rows=*/3, /*padding_index=*/1)};
  EXPECT_EQ(all.lists.longest, 2);
  for (std::int64_t row = 0; row < 3; ++row) all.add(row, 0, 2);
  EXPECT_EQ(sums, (std::array<float, 6>{3, 4, 0, 0, 8, 10}));
}

}  // namespace
}  // namespace loom::kernels::index
