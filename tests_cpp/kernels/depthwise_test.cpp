// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/depthwise.h"

#include "loom/kernels/conv/depthwise_direct.h"
#include "loom/kernels/conv/depthwise_filters.h"
#include "loom/kernels/conv/depthwise_last.h"
#include "loom/kernels/conv/depthwise_turned.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

namespace loom::kernels::conv {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Small whole numbers, whose sums are exact in any order.
std::vector<float> numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 13) - 6;
  return values;
}

class DepthwiseTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVELS(DepthwiseTest);

TEST_P(DepthwiseTest, RowsAreLaidOutBetweenZerosByColumnsAStrideApart) {
  constexpr std::int64_t kRows = 5, kStep = 40;
  const auto image = numbers(kRows * kStep);
  for (const auto& [stride, begin, end, columns] : {std::tuple{1, 0, 9, 9},
                                                    {1, 3, 37, 40},
                                                    {1, 20, 21, 60},
                                                    {2, 1, 36, 37},
                                                    {2, 0, 32, 34},
                                                    {2, 19, 20, 45},
                                                    {3, 2, 31, 34},
                                                    {5, 7, 8, 40},
                                                    {2, 5, 5, 9}}) {
    const std::int64_t part = stride == 1 ? columns : 80;
    const SeenRows how{.rows = kRows + 2,
                       .first = 1,
                       .last = kRows,
                       .begin = begin,
                       .end = end,
                       .columns = columns,
                       .stride = stride,
                       .image_step = kStep,
                       .row_step = stride * part,
                       .part_step = part};
    std::vector<float> made(how.rows * how.row_step + 2 * kDepthwiseBeyond, kNan);
    lay_out_rows<float>.of(GetParam())(image.data(), how, made.data());
    for (std::int64_t y = 0; y < how.rows; ++y) {
      for (std::int64_t x = 0; x < columns; ++x) {
        const bool inside = y >= how.first && y < how.last && x >= begin && x < end;
        const float expected = inside ? image[(y - how.first) * kStep + x - begin] : 0;
        ASSERT_EQ(made[y * how.row_step + how.place(x)], expected)
            << "stride " << stride << ", begin " << begin << ", row " << y << ", column " << x;
      }
    }
  }
}

TEST_P(DepthwiseTest, PixelsAreSumsOfWhatTheirTapsSee) {
  for (const auto& [rows, columns, kernel_y, kernel_x, stride, dilation] :
       {std::tuple{9, 37, 3, 3, 1, 1},
        {3, 70, 3, 3, 1, 2},
        {7, 7, 3, 3, 2, 1},
        {6, 20, 5, 5, 1, 1},
        {5, 17, 5, 5, 2, 1},
        {6, 14, 7, 7, 1, 1},
        {4, 90, 3, 3, 3, 2},
        {3, 20, 1, 5, 1, 1},
        {8, 5, 2, 4, 2, 1},
        {2, 16, 11, 11, 1, 1}}) {
    const std::int64_t row_step = columns + 30;
    const auto seen = numbers(((rows - 1) * stride + (kernel_y - 1) * dilation + 1) * row_step +
                              kDepthwiseBeyond);
    const auto weights = numbers(kernel_y * kernel_x);
    std::vector<std::int64_t> places;
    for (std::int64_t j = 0; j < kernel_x; ++j) places.push_back((kernel_x - 1 - j) * 2);
    const std::int64_t step = columns + 1;
    const DepthwiseRows how{.rows = rows,
                            .columns = columns,
                            .step = step,
                            .stride = stride,
                            .dilation = dilation,
                            .kernel_y = kernel_y,
                            .kernel_x = kernel_x,
                            .row_step = row_step,
                            .places = places.data()};
    std::vector<float> made(rows * step, -1000);
    depthwise_rows<float>.of(GetParam())(seen.data(), weights.data(), 3, how, made.data());
    for (std::int64_t y = 0; y < rows; ++y) {
      for (std::int64_t x = 0; x < columns; ++x) {
        float expected = 3;
        for (std::int64_t i = 0; i < kernel_y; ++i) {
          for (std::int64_t j = 0; j < kernel_x; ++j) {
            expected += weights[i * kernel_x + j] *
                        seen[(y * stride + i * dilation) * row_step + places[j] + x];
          }
        }
        ASSERT_EQ(made[y * step + x], expected) << rows << " x " << columns << ", " << kernel_y
                                                << " x " << kernel_x << ": " << y << ", " << x;
      }
      EXPECT_EQ(made[y * step + columns], -1000) << "beyond the row";
    }
  }
}

TEST_P(DepthwiseTest, ChannelsAreSumsOfWhatTheirTapsSee) {
  const std::vector<PointTap> taps{{0, 0}, {90, 40}, {200, 120}};
  for (const std::int64_t channels : {1, 7, 16, 37}) {
    for (const std::int64_t pixels : {1, 3, 8, 15}) {
      const PointRun run{.taps = taps.data(),
                         .count = static_cast<std::int64_t>(taps.size()),
                         .pixels = pixels,
                         .step = channels + 3,
                         .image_step = 41,
                         .channels = channels};
      const auto image = numbers(200 + pixels * run.image_step + channels);
      const auto weights = numbers(120 + channels), bias = numbers(channels);
      std::vector<float> made(pixels * run.step, -1000), expected = made;
      depthwise_points<float>.of(GetParam())(image.data(), weights.data(), bias.data(), run,
                                             made.data());
      for (std::int64_t p = 0; p < pixels; ++p) {
        for (std::int64_t c = 0; c < channels; ++c) {
          float& sum = expected[p * run.step + c] = bias[c];
          for (const PointTap& tap : taps) {
            sum += weights[tap.weight + c] * image[tap.image + p * run.image_step + c];
          }
        }
      }
      EXPECT_EQ(made, expected) << channels << " channels of " << pixels << " pixels";
    }
  }
}

TEST_P(DepthwiseTest, TurnedPlanesAreSummedOverTapsThatSeeThem) {
  for (const auto& [size, kernel, stride, padding, dilation] : {std::tuple{7, 3, 1, 1, 1},
                                                                {14, 3, 2, 1, 1},
                                                                {9, 7, 1, 3, 1},
                                                                {20, 3, 1, 2, 2},
                                                                {5, 3, 1, -1, 1},
                                                                {6, 2, 3, 0, 1},
                                                                {2, 3, 1, 4, 1},
                                                                {19, 1, 1, 0, 1}}) {
    const std::int64_t result = (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
    const WindowAxis y{size, result, kernel, stride, padding, dilation}, x = y;
    const auto image = numbers(size * size * kTurnedChannels);
    const auto weights = numbers(kernel * kernel * kTurnedChannels),
               bias = numbers(kTurnedChannels);
    std::vector<float> made(result * result * kTurnedChannels, -1000), expected = made;
    depthwise_turned<float>.of(GetParam())(image.data(), weights.data(), bias.data(), y, x,
                                           made.data());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(made.size()); ++i) {
      const std::int64_t pixel = i / kTurnedChannels, c = i % kTurnedChannels;
      expected[i] = bias[c];
      for (std::int64_t tap = 0; tap < kernel * kernel; ++tap) {
        const std::int64_t row = pixel / result * stride - padding + tap / kernel * dilation;
        const std::int64_t column = pixel % result * stride - padding + tap % kernel * dilation;
        if (row < 0 || row >= size || column < 0 || column >= size) continue;
        expected[i] +=
            weights[tap * kTurnedChannels + c] * image[(row * size + column) * kTurnedChannels + c];
      }
    }
    EXPECT_EQ(made, expected) << size << ", " << kernel << ", " << stride << ", " << padding;
  }
}

TEST_P(DepthwiseTest, PlanesAreSummedWhereTheyLie) {
  for (const std::int64_t kernel : {3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const auto& [rows, columns, padding_y, padding_x] : {std::tuple{7, 7, 1, 1},
                                                                {14, 14, 2, 3},
                                                                {9, 33, 0, 0},
                                                                {11, 16, 3, 20},
                                                                {8, 70, -1, -1},
                                                                {3, 40, 6, 1},
                                                                {20, 9, 1, 2}}) {
        const std::int64_t result_rows = (rows + 2 * padding_y - kernel) / stride + 1;
        const std::int64_t result_columns = (columns + 2 * padding_x - kernel) / stride + 1;
        if (rows + 2 * padding_y < kernel || columns + 2 * padding_x < kernel) continue;
        // What is beside the plane is not to be seen.
        std::vector<float> memory((rows + 2) * columns + 200, kNan);
        const auto image = memory.begin() + columns + 100;
        const auto values = numbers(rows * columns), weights = numbers(kernel * kernel);
        std::copy(values.begin(), values.end(), image);
        const std::int64_t step = result_columns + 3, first = result_rows / 3;
        std::vector<float> made(result_rows * step, -1000), expected = made;
        depthwise_direct.of(GetParam())(&*image, weights.data(), 3,
                                        {.rows = rows,
                                         .columns = columns,
                                         .padding_y = padding_y,
                                         .padding_x = padding_x,
                                         .kernel = kernel,
                                         .stride = stride,
                                         .first = first,
                                         .last = result_rows,
                                         .result_columns = result_columns,
                                         .step = step},
                                        made.data());
        for (std::int64_t y = first; y < result_rows; ++y) {
          for (std::int64_t x = 0; x < result_columns; ++x) {
            float& sum = expected[y * step + x] = 3;
            for (std::int64_t tap = 0; tap < kernel * kernel; ++tap) {
              const std::int64_t row = y * stride - padding_y + tap / kernel;
              const std::int64_t column = x * stride - padding_x + tap % kernel;
              if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
              sum += weights[tap] * values[row * columns + column];
            }
          }
        }
        EXPECT_EQ(made, expected) << kernel << " taps, stride " << stride << ", " << rows << " x "
                                  << columns << ", padding " << padding_y << ", " << padding_x;
      }
    }
  }
}

TEST_P(DepthwiseTest, GradientsOfWeightsAreSumsOverPixels) {
  constexpr std::int64_t kRows = 5, kColumns = 37, kRowStep = 60;
  const auto seen = numbers((kRows * 2 + 3) * kRowStep + kDepthwiseBeyond);
  const auto gradient = numbers(kRows * kColumns);
  const std::int64_t places[] = {0, 1, 20, 5};
  const DepthwiseRows how{.rows = kRows,
                          .columns = kColumns,
                          .step = kColumns,
                          .stride = 2,
                          .dilation = 1,
                          .kernel_y = 4,
                          .kernel_x = 4,
                          .row_step = kRowStep,
                          .places = places};
  std::vector<float> sums(16, 3), expected = sums;
  add_depthwise_taps<float>.of(GetParam())(seen.data(), gradient.data(), how, sums.data());
  for (std::int64_t tap = 0; tap < 16; ++tap) {
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
      const std::int64_t y = i / kColumns, x = i % kColumns;
      expected[tap] += gradient[i] * seen[(y * 2 + tap / 4) * kRowStep + places[tap % 4] + x];
    }
  }
  EXPECT_EQ(sums, expected);
}

TEST(DepthwiseFiltersTest, AreTurnedToTapsAndBack) {
  constexpr std::int64_t kChannels = 5, kTaps = 6, kStep = 8;
  const auto filters = numbers(kChannels * kTaps);
  for (const bool flipped : {false, true}) {
    std::vector<float> made(kTaps * kStep, -1000), expected = made;
    filters_by_taps(filters.data(), kChannels, kTaps, flipped, made.data(), kStep);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (std::int64_t tap = 0; tap < kTaps; ++tap) {
        expected[(flipped ? kTaps - 1 - tap : tap) * kStep + c] = filters[c * kTaps + tap];
      }
    }
    EXPECT_EQ(made, expected) << flipped;
  }
  std::vector<float> by_taps(filters.size()), back(filters.size());
  filters_by_taps(filters.data(), kChannels, kTaps, false, by_taps.data(), kChannels);
  filters_by_channels(by_taps.data(), kChannels, kTaps, back.data());
  EXPECT_EQ(back, filters);
}

TEST(DepthwiseFiltersTest, EveryTapOfBothDirectionsIsFlipped) {
  const auto filter = numbers(7 * 5);
  std::vector<float> made(2 * 3);
  // Rows 1 and 5, columns 0, 2 and 4.
  flipped_taps(filter.data(), 5, {.count = 2, .first = 1, .stride = 4},
               {.count = 3, .first = 0, .stride = 2}, made.data());
  EXPECT_EQ(made,
            (std::vector{filter[29], filter[27], filter[25], filter[9], filter[7], filter[5]}));
}

TEST_P(DepthwiseTest, PartsAreInterleaved) {
  for (const std::int64_t count : {2, 3}) {
    for (const std::int64_t columns : {1, 2, 15, 32, 33, 70}) {
      constexpr std::int64_t kStep = 60;
      const auto parts = numbers(count * kStep);
      std::vector<float> made(columns + 1, -1000), expected = made;
      interleave_row<float>.of(GetParam())(parts.data(), kStep, count, columns, made.data());
      for (std::int64_t x = 0; x < columns; ++x) {
        expected[x] = parts[x % count * kStep + x / count];
      }
      EXPECT_EQ(made, expected) << columns << " of " << count;
    }
  }
}

}  // namespace
}  // namespace loom::kernels::conv
