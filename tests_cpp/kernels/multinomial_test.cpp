// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/rng/multinomial.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::rng {
namespace {

template <class T>
SteppedVector<const T> every_second(std::vector<T>& memory) {
  return {reinterpret_cast<std::byte*>(memory.data()), 2 * sizeof(T)};
}

TEST(MultinomialTest, NumbersFallIntoTheFirstCategoryWhoseSumIsBeyond) {
  std::vector<float> memory{0, 9, 2, 9, 0, 9, 1, 9, 5, 9, 0, 9};
  Categories categories;
  ASSERT_EQ(categories.assign(every_second(memory), 6), WeightFault::kNone);
  for (int i = 0; i < 8; ++i) {
    const int expected = i < 2 ? 1 : i < 3 ? 3 : 4;
    EXPECT_EQ(categories.pick(i / 8.0), expected) << i;
    EXPECT_EQ(categories.pick((i + 0.999) / 8.0), expected) << i;
  }
  EXPECT_EQ(categories.pick(1), 4);
}

TEST(MultinomialTest, SamplesUseTheWordsOfTheirValues) {
  constexpr PhiloxStream kStream{7, 64};
  std::vector<double> memory(200, 1);
  Categories categories;
  ASSERT_EQ(categories.assign(every_second(memory), 100), WeightFault::kNone);
  for (const std::int64_t first : {0, 5, 70}) {
    std::vector<std::int64_t> made(3 * 50, -1);
    categories.draw({reinterpret_cast<std::byte*>(made.data()), 3 * sizeof(std::int64_t)}, 50,
                    kStream, first);
    WordReader<2> reader(kStream, first);
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (i % 3 != 0) {
        EXPECT_EQ(made[i], -1);
        continue;
      }
      // 53 bits of equally likely categories.
      const auto [low, high] = reader.next();
      const auto bits = static_cast<unsigned __int128>(std::uint64_t{high} << 32 | low) >> 11;
      EXPECT_EQ(made[i], static_cast<std::int64_t>(bits * 100 >> 53));
    }
  }
}

TEST(MultinomialTest, TheFirstFaultOfWeightsIsNamed) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto fault = [](std::vector<double> weights) {
    return Categories().assign(
        SteppedVector<const double>{reinterpret_cast<std::byte*>(weights.data()), sizeof(double)},
        static_cast<std::int64_t>(weights.size()));
  };
  EXPECT_EQ(fault({1, -1, kNan}), WeightFault::kNegative);
  EXPECT_EQ(fault({1, -kInfinity}), WeightFault::kNegative);
  EXPECT_EQ(fault({1, kNan, -1}), WeightFault::kNotFinite);
  EXPECT_EQ(fault({1, kInfinity}), WeightFault::kNotFinite);
  EXPECT_EQ(fault({0, 0}), WeightFault::kNoSum);
  EXPECT_EQ(fault({0, 1}), WeightFault::kNone);
}

}  // namespace
}  // namespace loom::kernels::rng
