// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/scan/scan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::scan {
namespace {

// What a loop over each line makes, of sums.
std::vector<std::int64_t> sums_of(const std::vector<std::int64_t>& from, const Layout& layout) {
  std::vector<std::int64_t> to = from;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(to.size()); ++i) {
    if (i / layout.inner % layout.length == 0) continue;
    to[static_cast<std::size_t>(i)] += to[static_cast<std::size_t>(i - layout.inner)];
  }
  return to;
}

std::vector<std::int64_t> numbers(const Layout& layout) {
  std::vector<std::int64_t> from;
  for (std::int64_t i = 0; i < layout.outer * layout.length * layout.inner; ++i) {
    from.push_back(i * 7 % 11);
  }
  return from;
}

class ScanTest : public testing::TestWithParam<Layout> {};

TEST_P(ScanTest, UnitsAreAllLines) {
  const Layout layout = GetParam();
  const auto from = numbers(layout);
  std::vector<std::int64_t> to(from.size());
  const Scan<std::int64_t, false> scan{from.data(), to.data(), layout};
  for (std::int64_t unit = 0; unit < layout.units(); ++unit) {
    auto all = scan.none();
    scan.run<true>(unit, 0, layout.length, all);
  }
  EXPECT_EQ(to, sums_of(from, layout));
}

TEST_P(ScanTest, PartsGoOnFromWhatIsBeforeThem) {
  const Layout layout = GetParam();
  const auto from = numbers(layout);
  std::vector<std::int64_t> to(from.size());
  const Scan<std::int64_t, false> scan{from.data(), to.data(), layout};
  const std::int64_t middle = layout.length / 2;
  for (std::int64_t unit = 0; unit < layout.units(); ++unit) {
    auto so_far = scan.none(), first = scan.none(), second = scan.none();
    scan.run<false>(unit, 0, middle, first);
    scan.pass_on(unit, so_far, first);
    scan.pass_on(unit, so_far, second);
    scan.run<true>(unit, 0, middle, first);
    scan.run<true>(unit, middle, layout.length, second);
  }
  EXPECT_EQ(to, sums_of(from, layout));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ScanTest,
                         testing::Values(Layout{3, 10, 1}, Layout{2, 5, 7}, Layout{2, 6, 130}));

TEST(ScanNumbersTest, IntegersWrapAround) {
  using Products = Scan<std::int64_t, true>;
  EXPECT_EQ(Products::next(std::numeric_limits<std::int64_t>::max(), 2), -2);
}

TEST(ScanNumbersTest, FloatsAreSummedInDouble) {
  const std::vector<float> from{1 << 24, 1, 1};
  std::vector<float> to(3);
  Scan<float, false>{from.data(), to.data(), {1, 3, 1}}.in_rows(0, 1);
  EXPECT_EQ(to, (std::vector<float>{1 << 24, 1 << 24, (1 << 24) + 2}));
}

}  // namespace
}  // namespace loom::kernels::scan
