// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/dot_rows.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstdint>
#include <vector>

namespace loom::kernels::gemm {
namespace {

constexpr std::int64_t kRows = 7, kStride = 301;
// Of a sum of up to 300 products below 1: half a unit in the last place for each.
constexpr double kAllowed = 300 * 0x1p-24;

template <class T>
std::vector<T> numbers(std::int64_t count, std::uint32_t seed) {
  const auto values = testing::numbers(count, seed);
  std::vector<T> made(values.size());
  for (std::size_t i = 0; i < made.size(); ++i) simd::round_to(made[i], values[i]);
  return made;
}

template <class T>
double dot(const T* a, const T* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) sum += double{simd::widen(a[k])} * simd::widen(b[k]);
  return sum;
}

class DotRowsTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_products() {
    const auto matrix = numbers<T>(kRows * kStride, 1), vector = numbers<T>(kStride, 2);
    for (const std::int64_t inner : {1, 15, 16, 17, 64, 100, 300}) {
      std::vector<float> to(kRows);
      dot_rows<T>.of(GetParam())(vector.data(), matrix.data(), kStride, kRows, inner, to.data());
      for (std::int64_t i = 0; i < kRows; ++i) {
        EXPECT_NEAR(to[i], dot(vector.data(), &matrix[i * kStride], inner), kAllowed) << inner;
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(DotRowsTest);

TEST_P(DotRowsTest, OfFloats) { expect_products<float>(); }
TEST_P(DotRowsTest, OfBFloat16) { expect_products<simd::BFloat16>(); }
TEST_P(DotRowsTest, OfHalf) { expect_products<simd::Half>(); }

TEST_P(DotRowsTest, OfFourVectors) {
  const auto matrix = numbers<float>(kRows * kStride, 1), vectors = numbers<float>(4 * kStride, 2);
  for (const std::int64_t inner : {3, 16, 33, 300}) {
    std::vector<float> to(4 * kRows);
    dot_four.of(GetParam())(vectors.data(), kStride, matrix.data(), kStride, kRows, inner,
                            to.data(), kRows);
    for (std::int64_t v = 0; v < 4; ++v) {
      for (std::int64_t i = 0; i < kRows; ++i) {
        EXPECT_NEAR(to[v * kRows + i], dot(&vectors[v * kStride], &matrix[i * kStride], inner),
                    kAllowed);
      }
    }
  }
}

}  // namespace
}  // namespace loom::kernels::gemm
