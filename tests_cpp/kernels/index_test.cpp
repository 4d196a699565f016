// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/index/elements.h"
#include "loom/kernels/index/row_lists.h"
#include "loom/kernels/index/row_maxima.h"
#include "loom/kernels/index/rows.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
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

template <class Index>
void expect_items_gathered(std::int64_t bytes) {
  const Lines lines{.outer = 3, .items = 5, .inner = bytes, .count = 4};
  std::vector<std::byte> from(static_cast<std::size_t>(elements_of(lines)));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i);
  const Index index[] = {4, 0, 0, 2}, beyond[] = {4, 0, 0, 5}, before[] = {4, 0, -1, 2};
  constexpr std::int64_t kBegin = 2, kEnd = 11;
  std::vector<std::byte> made(static_cast<std::size_t>(12 * bytes), std::byte{99}), expected = made;
  EXPECT_TRUE(gather_items(made.data(), from.data(), index, lines, kBegin, kEnd));
  for (std::int64_t i = kBegin * bytes; i < kEnd * bytes; ++i) {
    const std::int64_t item = i / bytes, place = item / 4 * 5 + index[item % 4];
    expected[static_cast<std::size_t>(i)] =
        from[static_cast<std::size_t>(place * bytes + i % bytes)];
  }
  EXPECT_EQ(made, expected) << bytes;
  EXPECT_FALSE(gather_items(made.data(), from.data(), beyond, lines, kBegin, kEnd));
  EXPECT_FALSE(gather_items(made.data(), from.data(), before, lines, kBegin, kEnd));
  EXPECT_TRUE(gather_items(made.data(), from.data(), beyond, lines, 0, 3));
}

TEST(GatherItemsTest, OfAnySizeWhereAllAreThere) {
  for (const std::int64_t bytes : {1, 2, 4, 8, 12}) {
    expect_items_gathered<std::int32_t>(bytes);
    expect_items_gathered<std::int64_t>(bytes);
  }
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

TEST(RowListsTest, RowsThatAreNotThereAndThePaddingAreInNone) {
  const std::array<std::int32_t, 6> index{2, 0, 7, 2, -1, 1};
  const RowLists lists = lists_of(index.data(), 6, /*rows=*/3, /*padding_index=*/1);
  EXPECT_EQ(lists.longest, 2);
  EXPECT_EQ(lists.first, (std::vector<std::int64_t>{1, -1, 0}));
  EXPECT_EQ(lists.next[0], 3);
  EXPECT_EQ(lists.next[3], -1);
}

class RowMaximaTest : public testing::SimdTest {};

TEST_P(RowMaximaTest, TheFirstOfTheLargestIsFoundInEachColumn) {
  constexpr std::int64_t kColumns = 37;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::array<std::array<float, kColumns>, 4> rows{};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < kColumns; ++c) rows[r][c] = static_cast<float>((c * 7 + r * 5) % 4);
  }
  rows[0][3] = rows[2][36] = kNan;
  const std::array<const float*, 4> starts{rows[0].data(), rows[1].data(), rows[2].data(),
                                           rows[3].data()};
  std::array<float, kColumns> found{};
  std::array<std::int32_t, kColumns> which{};
  row_maxima<float>.of(GetParam())(starts.data(), 4, kColumns, found.data(), which.data());
  for (std::size_t c = 0; c < kColumns; ++c) {
    std::size_t best = 0;
    for (std::size_t r = 1; r < rows.size(); ++r) {
      if (rows[r][c] > rows[best][c]) best = r;
    }
    EXPECT_EQ(which[c], static_cast<std::int32_t>(best)) << c;
    EXPECT_TRUE(found[c] == rows[best][c] || c == 3) << c;
  }
  EXPECT_TRUE(std::isnan(found[3]));
}

LOOM_TEST_SIMD_LEVELS(RowMaximaTest);

}  // namespace
}  // namespace loom::kernels::index
