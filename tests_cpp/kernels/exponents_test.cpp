// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/exponents.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::conv {
namespace {

class ExponentsTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_exponents(const std::vector<float>& values) {
    std::vector<T> data(values.size());
    Exponents expected;
    for (std::size_t i = 0; i < values.size(); ++i) {
      simd::round_to(data[i], values[i]);
      const auto bits = std::bit_cast<std::uint32_t>(simd::widen(data[i]));
      const std::int64_t exponent = bits >> 23 & 0xFF;
      if (exponent == 0 || exponent == 0xFF) continue;
      expected.add({exponent, 1, exponent});
    }
    const Exponents found =
        exponents_of<T>.of(GetParam())(data.data(), static_cast<std::int64_t>(data.size()));
    EXPECT_EQ(found.sum, expected.sum);
    EXPECT_EQ(found.count, expected.count);
    EXPECT_EQ(found.largest, expected.largest);
  }
};
LOOM_TEST_SIMD_LEVELS(ExponentsTest);

TEST_P(ExponentsTest, OfAnyNumberOfElements) {
  for (const std::size_t count : {0, 1, 15, 16, 33, 20000}) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = std::ldexp(i % 3 == 0 ? -1.3F : 1.7F, static_cast<int>(i * 37 % 250) - 125);
      if (i % 11 == 0) values[i] = i % 2 == 0 ? 0 : 1e-41F;
    }
    expect_exponents<float>(values);
    expect_exponents<simd::BFloat16>(values);
    if (count < 2) continue;
    values[1] = std::numeric_limits<float>::infinity();
    values[count / 2] = std::numeric_limits<float>::quiet_NaN();
    expect_exponents<float>(values);
    expect_exponents<simd::BFloat16>(values);
  }
}

}  // namespace
}  // namespace loom::kernels::conv
