// SPDX-License-Identifier: BSD-3-Clause
// Sums over channels and moments of everything, against sums in double precision.
#include "loom/kernels/norm/channels.h"

#include "loom/kernels/norm/moments.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <cmath>
#include <limits>
#include <vector>

namespace loom::kernels::norm {
namespace {

using simd::BFloat16;
using testing::elements;
using testing::exact;

// Long runs, short runs, and channels last.
constexpr ChannelLayout kLayouts[] = {{5, 7, 100}, {9, 12, 49}, {40, 3, 2}, {130, 37, 1}};
// Numbers below 4 about 2, up to 500 of them, at most 64 of which are added in float32.
constexpr double kAllowed = 500 * 16 * 0x1p-24;
constexpr float kFactor = 1.5F;

template <class T>
class ChannelsTest : public ::testing::Test {
 protected:
  struct Channel {
    double sum = 0, square_sum = 0, slope = 0, product = 0;
  };

  void make(ChannelLayout of) {
    layout = of;
    from = elements<T>(of.outer * of.channels * of.inner, 1);
    grad = elements<T>(of.outer * of.channels * of.inner, 2);
    for (T& value : from) simd::round_to(value, simd::widen(value) + 2);
    means = elements<float>(of.channels, 3);
    mean.assign(static_cast<std::size_t>(of.channels), 7);
    second.assign(static_cast<std::size_t>(of.channels), 7);
  }
  [[nodiscard]] Channel expected(std::int64_t channel) const {
    const auto for_each = [&](auto body) {
      for (std::int64_t i = 0; i < layout.outer; ++i) {
        for (std::int64_t j = 0; j < layout.inner; ++j) {
          const std::int64_t at = (i * layout.channels + channel) * layout.inner + j;
          body(exact(from[at]), exact(grad[at]));
        }
      }
    };
    Channel made;
    for_each([&](double x, double slope) {
      made.sum += x;
      made.slope += slope;
      made.product += slope * (x - double{means[channel]});
    });
    for_each([&](double x, double) {
      const double distance = x - made.sum / static_cast<double>(layout.count());
      made.square_sum += distance * distance;
    });
    return made;
  }
  /// As several cores do it.
  template <class Body>
  void for_ranges(Body body) {
    const std::int64_t middle = layout.channels / 2;
    for (const Range range : {Range{middle, layout.channels}, Range{0, middle}}) {
      std::vector<float> room(static_cast<std::size_t>(room_of_channels(layout, range)) + 1, 3);
      body(range, room.data());
      EXPECT_EQ(room.back(), 3);
    }
  }
  /// The same of channels last, with sums that are added to.
  template <class Body>
  void for_blocks(Body body) {
    mean.assign(mean.size(), 0);
    second.assign(second.size(), 0);
    const std::int64_t row = layout.outer / 4, channel = layout.channels / 2;
    for (const Range rows : {Range{0, row}, Range{row, layout.outer}}) {
      for (const Range channels : {Range{channel, layout.channels}, Range{0, channel}}) {
        body(RowBlock{rows, channels, layout.channels});
      }
    }
  }

  ChannelLayout layout{};
  std::vector<T> from, grad;
  std::vector<float> means;
  std::vector<double> mean, second;
};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(ChannelsTest, Types);

TYPED_TEST(ChannelsTest, Moments) {
  for (const ChannelLayout layout : kLayouts) {
    this->make(layout);
    if (layout.inner > 1) {
      this->for_ranges([&](Range range, float* room) {
        channel_moments(this->from.data(), layout, range, room, this->mean.data(),
                        this->second.data());
      });
    } else {
      std::vector<float> shift(this->mean.size()), room(2 * this->mean.size());
      find_shift(this->from.data(), layout, room.data(), shift.data());
      this->for_blocks([&](const RowBlock& block) {
        add_moments_of_rows(this->from.data(), shift.data(), block, room.data(), this->mean.data(),
                            this->second.data());
      });
      finish_moments(layout, shift.data(), this->mean.data(), this->second.data());
    }
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      const auto expected = this->expected(c);
      EXPECT_NEAR(this->mean[c], expected.sum / static_cast<double>(layout.count()), kAllowed);
      EXPECT_NEAR(this->second[c], expected.square_sum, kAllowed);
    }
  }
}

TYPED_TEST(ChannelsTest, Gradients) {
  for (const ChannelLayout layout : kLayouts) {
    this->make(layout);
    if (layout.inner > 1) {
      this->for_ranges([&](Range range, float* room) {
        channel_gradients(this->grad.data(), this->from.data(), layout, range, this->means.data(),
                          room, this->mean.data(), this->second.data());
      });
    } else {
      std::vector<float> room(2 * this->mean.size());
      this->for_blocks([&](const RowBlock& block) {
        add_gradients_of_rows(this->grad.data(), this->from.data(), this->means.data(), block,
                              room.data(), this->mean.data(), this->second.data());
      });
    }
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      const auto expected = this->expected(c);
      EXPECT_NEAR(this->mean[c], expected.slope, kAllowed);
      EXPECT_NEAR(this->second[c], expected.product, kAllowed);
    }
  }
}

TYPED_TEST(ChannelsTest, SumsAndQuotients) {
  for (const ChannelLayout layout : kLayouts) {
    this->make(layout);
    if (layout.inner > 1) {
      this->for_ranges([&](Range range, float*) {
        channel_sums(this->from.data(), layout, range, this->mean.data());
      });
    } else {
      std::vector<float> room(this->mean.size());
      this->for_blocks([&](const RowBlock& block) {
        add_sums_of_rows(this->from.data(), block, room.data(), this->mean.data());
      });
    }
    std::vector<TypeParam> quotients(this->mean.size());
    store_quotients(this->mean.data(), double{kFactor}, layout.channels, quotients.data());
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      EXPECT_NEAR(this->mean[c], this->expected(c).sum, kAllowed);
      EXPECT_LE(testing::ulps(quotients[c], this->mean[c] / kFactor), 0.51);
    }
  }
}

TYPED_TEST(ChannelsTest, MomentsOfEverythingAreMerged) {
  const auto row = elements<TypeParam>(5000, 4);
  double sum = 0, squares = 0;
  for (const TypeParam x : row) sum += exact(x);
  for (const TypeParam x : row) squares += (exact(x) - sum / 5000) * (exact(x) - sum / 5000);
  EXPECT_NEAR(total(row.data(), 5000, false), sum, kAllowed);
  const Moments all = merged(merged({}, moments(row.data(), 1234)), moments(&row[1234], 3766));
  EXPECT_EQ(all.count, 5000);
  EXPECT_NEAR(all.mean, sum / 5000, kAllowed);
  EXPECT_NEAR(all.squares, squares, kAllowed);
}

TEST(MomentsTest, WhatFloatCannotHoldIsSummedUpInDouble) {
  const std::vector<float> huge = {3e38F, 3e38F, -3e38F, -3e38F}, tiny = {1e-30F, 3e-30F};
  EXPECT_EQ(total(huge.data(), 4, false), 0);
  EXPECT_NEAR(moments(huge.data(), 4).squares / 4, 9e76, 1e70);
  EXPECT_NEAR(moments(tiny.data(), 2).squares, 2e-60, 1e-66);
}

TEST(MomentsTest, OfSumsOfSeveralRunsInDouble) {
  // Two channels of two runs of two elements.
  const std::vector<float> huge = {3e30F, -3e30F, 0, 0, 1e30F, -1e30F, 0, 0};
  const Moments found = wide_moments_of_sums(huge.data(), 2, 4, 2);
  EXPECT_EQ(found.count, 4);
  EXPECT_EQ(found.mean, 0);
  EXPECT_NEAR(found.squares, 20e60, 1e55);
  const std::vector<float> equal(8, 0.1F);
  EXPECT_EQ(wide_moments_of_sums(equal.data(), 2, 4, 2).mean, double{0.1F});
  EXPECT_EQ(wide_moments_of_sums(equal.data(), 2, 4, 2).squares, 0);
}

TEST(MomentsTest, OfColumnsBesideEachOtherInDouble) {
  // Rows of three elements, of which two are columns.
  const std::vector<float> rows = {1e30F, 0.1F, 7, -1e30F, 0.1F, 7};
  Moments found[2];
  wide_moments_of_columns(rows.data(), 2, 3, 2, found);
  EXPECT_EQ(found[0].count, 2);
  EXPECT_EQ(found[0].mean, 0);
  EXPECT_NEAR(found[0].squares, 2e60, 1e54);
  EXPECT_EQ(found[1].mean, double{0.1F});
  EXPECT_EQ(found[1].squares, 0);
}

TEST(MomentsTest, SquaresThatEpsOutweighsNeedNoMoreDigits) {
  EXPECT_TRUE(needs_wide_moments(1e-40, 10));
  EXPECT_TRUE(needs_wide_moments(std::numeric_limits<double>::infinity(), 10, 1e-5));
  EXPECT_FALSE(needs_wide_moments(1e-40, 10, 1e-5));
  EXPECT_FALSE(needs_wide_moments(1, 10));
}

TEST(MomentsTest, AnInfiniteElementMakesTheMeanOfSumsInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> row = {1, infinity, 2};
  EXPECT_EQ(wide_moments_of_sums(row.data(), 1, 0, 3).mean, infinity);
  EXPECT_TRUE(std::isnan(wide_moments_of_sums(row.data(), 1, 0, 3).squares));
  EXPECT_TRUE(std::isnan(wide_moments(row.data(), 1, 0, 3).mean));
}

TEST(MomentsTest, EqualElementsVaryByTheRoundingOfTheirMeanAtMost) {
  const std::vector<float> row(777, 0.1F);
  constexpr double kRounding = 0.1 / (1 << 22);  // two of a float: short vectors add up longer
  EXPECT_NEAR(moments(row.data(), 777).mean, double{0.1F}, kRounding);
  EXPECT_LE(moments(row.data(), 777).squares, 777 * kRounding * kRounding);
}

TEST(MomentsTest, NaNIsLeftOutWhereOnlyNumbersCount) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(total(std::vector<float>{1, nan, 2}.data(), 3, true), 3);
  EXPECT_TRUE(std::isnan(total(std::vector<float>{1, nan, 2}.data(), 3, false)));
  EXPECT_EQ(total(std::vector<float>{1, nan, infinity}.data(), 3, true), infinity);
  EXPECT_TRUE(std::isnan(moments(std::vector<float>{1, nan, 2}.data(), 3).mean));
}

}  // namespace
}  // namespace loom::kernels::norm
