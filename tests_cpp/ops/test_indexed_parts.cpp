// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/lines.h"

#include <gtest/gtest.h>

#include <vector>

namespace loom::ops {
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

}  // namespace
}  // namespace loom::ops
