// SPDX-License-Identifier: BSD-3-Clause
// Where extrema are, for every instruction set.
#include "loom/kernels/norm/places.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::norm {
namespace {

using simd::BFloat16;

// What a loop over the elements finds.
template <class T>
std::int64_t first_place(const T* from, std::int64_t step, std::int64_t count, bool largest) {
  std::int64_t place = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    const float value = simd::widen(from[i * step]), best = simd::widen(from[place * step]);
    if (std::isnan(best)) break;
    if (std::isnan(value) || (largest ? value > best : value < best)) place = i;
  }
  return place;
}

class PlacesTest : public testing::SimdTest {
 protected:
  // Few different values, so that the first of many equal ones is looked for.
  template <class T>
  static std::vector<T> few_values(std::int64_t count, int seed, bool with_nan) {
    auto values = testing::elements<T>(count, seed);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float value = std::round(4 * simd::widen(values[i]));
      if (with_nan && i % 41 == 40) value = std::numeric_limits<float>::quiet_NaN();
      simd::round_to(values[i], value);
    }
    return values;
  }

  template <class T>
  void expect_places(bool with_nan) {
    constexpr std::int64_t kRows = 9;
    for (const std::int64_t columns : testing::kRowLengths) {
      const auto rows = few_values<T>(kRows * columns, static_cast<int>(columns), with_nan);
      for (const bool largest : {false, true}) {
        std::vector<std::int64_t> places(static_cast<std::size_t>(columns + 1), -1);
        extremum_places<T>.of(GetParam())(rows.data(), columns, kRows, columns, largest,
                                          places.data());
        EXPECT_EQ(places.back(), -1) << "beyond the row";
        for (std::int64_t i = 0; i < columns; ++i) {
          EXPECT_EQ(places[i], first_place(rows.data() + i, columns, kRows, largest));
        }
        for (std::int64_t row = 0; row < kRows; ++row) {
          const T* const from = rows.data() + row * columns;
          EXPECT_EQ(extremum_place<T>.of(GetParam())(from, columns, largest),
                    first_place(from, 1, columns, largest))
              << columns;
        }
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(PlacesTest);

TEST_P(PlacesTest, OfFloats) { expect_places<float>(false); }
TEST_P(PlacesTest, OfBFloat16) { expect_places<BFloat16>(false); }
TEST_P(PlacesTest, OfFloatsAmongWhichAreNoNumbers) { expect_places<float>(true); }
TEST_P(PlacesTest, OfBFloat16AmongWhichAreNoNumbers) { expect_places<BFloat16>(true); }

}  // namespace
}  // namespace loom::kernels::norm
