// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/scan/scan.h"

#include "loom/kernels/scan/half_scan.h"

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
                         testing::Values(Layout{3, 10, 1}, Layout{2, 5, 7}, Layout{2, 6, 130},
                                         Layout{2, 5000, 1}, Layout{1, 100, 64}));

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

// Sums of small integers are exact, and rounded when they are written.
TEST_P(ScanTest, HalfTypesAreSummedInFloat) {
  const Layout layout = GetParam();
  const auto numbers_of = numbers(layout);
  std::vector<simd::BFloat16> from(numbers_of.size()), to(from.size()), rows(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    simd::round_to(from[i], static_cast<float>(numbers_of[i]));
  }
  const HalfScan<simd::BFloat16, false> scan{from.data(), to.data(), layout};
  for (std::int64_t unit = 0; unit < layout.units(); ++unit) {
    auto first = scan.none(), second = scan.none(), so_far = scan.none();
    const std::int64_t middle = layout.length / 2;
    scan.run<false>(unit, 0, middle, first);
    scan.pass_on(unit, so_far, first);
    scan.pass_on(unit, so_far, second);
    scan.run<true>(unit, 0, middle, first);
    scan.run<true>(unit, middle, layout.length, second);
  }
  const auto sums = sums_of(numbers_of, layout);
  for (std::size_t i = 0; i < to.size(); ++i) {
    simd::BFloat16 expected;
    simd::round_to(expected, static_cast<float>(sums[i]));
    ASSERT_EQ(to[i].bits, expected.bits) << i;
  }
  if (layout.inner != 1) return;
  HalfScan<simd::BFloat16, false>{from.data(), rows.data(), layout}.in_rows(0, layout.outer);
  for (std::size_t i = 0; i < to.size(); ++i) ASSERT_EQ(rows[i].bits, to[i].bits) << i;
}

}  // namespace
}  // namespace loom::kernels::scan
