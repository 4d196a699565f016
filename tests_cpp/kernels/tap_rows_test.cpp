// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/tap_rows.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <cstdint>
#include <vector>

namespace loom::kernels::conv {
namespace {

constexpr std::int64_t kChannels = 3, kImage = 400, kColumn = 130;

std::vector<float> numbers(std::int64_t count, float first) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = first += 0.5F;
  return values;
}

class TapRowsTest : public testing::SimdTest {
 protected:
  // Pieces of all the lengths that there is code for, `step` apart in the image.
  static std::vector<Piece> pieces(std::int64_t step) {
    std::vector<Piece> made;
    std::int64_t image = 1, column = 2;
    for (const std::int64_t count : {1, 2, 3, 5, 8, 13, 16, 17, 40}) {
      made.push_back({image, column, count});
      image += (count - 1) * step + 2;
      column += count + 1;
    }
    return made;
  }
};
LOOM_TEST_SIMD_LEVELS(TapRowsTest);

TEST_P(TapRowsTest, AreMadeOfTheImage) {
  for (const std::int64_t step : {1, 2, 3}) {
    const auto all = pieces(step);
    const auto image = numbers(kChannels * kImage, 7);
    const TapRows tap{.channels = kChannels,
                      .image_step = kImage,
                      .column_step = kColumn,
                      .pieces = all.data(),
                      .count = static_cast<std::int64_t>(all.size()),
                      .zeros = kColumn,
                      .step = step};
    std::vector<float> column(kChannels * kColumn, -1), expected(column.size());
    make_rows.of(GetParam())(image.data(), tap, column.data());
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (const Piece& piece : all) {
        for (std::int64_t i = 0; i < piece.count; ++i) {
          expected[c * kColumn + piece.column + i] = image[c * kImage + piece.image + i * step];
        }
      }
    }
    EXPECT_EQ(column, expected) << step;
  }
}

TEST_P(TapRowsTest, AreAddedToTheImage) {
  for (const std::int64_t step : {1, 2, 3}) {
    const auto all = pieces(step);
    const auto column = numbers(kChannels * kColumn, 3);
    const TapRows tap{.channels = kChannels,
                      .image_step = kImage,
                      .column_step = kColumn,
                      .pieces = all.data(),
                      .count = static_cast<std::int64_t>(all.size()),
                      .zeros = 0,
                      .step = step};
    auto image = numbers(kChannels * kImage, 7), expected = image;
    add_rows.of(GetParam())(column.data(), tap, image.data());
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (const Piece& piece : all) {
        for (std::int64_t i = 0; i < piece.count; ++i) {
          expected[c * kImage + piece.image + i * step] += column[c * kColumn + piece.column + i];
        }
      }
    }
    EXPECT_EQ(image, expected) << step;
  }
}

}  // namespace
}  // namespace loom::kernels::conv
