// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/small_products.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace loom::kernels::gemm {
namespace {

constexpr std::int64_t kItems = 3;

struct Shape {
  std::int64_t rows, inner, columns;
};

/// A batch of dense matrices, or of such that are turned.
template <class T>
Batch<T> batch(T* data, std::int64_t rows, std::int64_t columns, bool turned) {
  return {data, rows * columns, turned ? 1 : columns, turned ? rows : 1};
}

template <class T>
std::vector<T> matrices(std::int64_t count, std::uint32_t seed) {
  const auto values = testing::numbers(count, seed);
  std::vector<T> made(values.size());
  for (std::size_t i = 0; i < made.size(); ++i) simd::round_to(made[i], values[i]);
  return made;
}

class SmallProductsTest : public testing::SimdTest {
 protected:
  /// `allowed`: of a number of about 1 when it is rounded.
  template <class T>
  void expect_products(double allowed) {
    for (const Shape s : {Shape{1, 1, 1}, Shape{4, 3, 16}, Shape{5, 7, 31}, Shape{9, 30, 13}}) {
      for (const int turned : {0, 1, 2, 4, 7}) {
        for (const float beta : {0.0F, 0.5F}) expect_product<T>(s, turned, beta, allowed);
      }
    }
  }

 private:
  template <class T>
  void expect_product(Shape s, int turned, float beta, double allowed) {
    const auto left = matrices<T>(kItems * s.rows * s.inner, 1),
               right = matrices<T>(kItems * s.inner * s.columns, 2),
               addend = matrices<T>(s.columns, 3);
    std::vector<T> result(static_cast<std::size_t>(kItems * s.rows * s.columns));
    const SmallProducts<T> p{.result = batch(result.data(), s.rows, s.columns, (turned & 4) != 0),
                             .addend = {addend.data(), 0, 0, 1},
                             .left = batch(left.data(), s.rows, s.inner, (turned & 1) != 0),
                             .right = batch(right.data(), s.inner, s.columns, (turned & 2) != 0),
                             .rows = s.rows,
                             .inner = s.inner,
                             .columns = s.columns,
                             .alpha = Sum<T>(1.5),
                             .beta = Sum<T>(beta)};
    multiply_items<T>.of(GetParam())(p, 0, kItems);
    for (std::int64_t item = 0; item < kItems; ++item) {
      const auto of = [&](const auto& all, std::int64_t r, std::int64_t c) {
        return double{simd::widen(all.of(item).at(r, c))};
      };
      for (std::int64_t r = 0; r < s.rows; ++r) {
        for (std::int64_t c = 0; c < s.columns; ++c) {
          double sum = 0;
          for (std::int64_t k = 0; k < s.inner; ++k) sum += of(p.left, r, k) * of(p.right, k, c);
          sum = 1.5 * sum + beta * of(p.addend, r, c);
          EXPECT_NEAR(of(p.result, r, c), sum, allowed * std::max(1.0, std::abs(sum)));
        }
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(SmallProductsTest);

TEST_P(SmallProductsTest, OfFloats) { expect_products<float>(30 * 0x1p-23); }
TEST_P(SmallProductsTest, OfDoubles) { expect_products<double>(30 * 0x1p-52); }
TEST_P(SmallProductsTest, OfHalves) { expect_products<simd::Half>(0x1p-11 + 30 * 0x1p-23); }
TEST_P(SmallProductsTest, OfBFloat16) { expect_products<simd::BFloat16>(0x1p-8 + 30 * 0x1p-23); }

}  // namespace
}  // namespace loom::kernels::gemm
