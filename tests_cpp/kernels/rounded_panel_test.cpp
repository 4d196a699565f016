// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/rounded_panel.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/simd_levels.h"
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::kernels::gemm {
namespace {

using simd::BFloat16;

/// Small whole numbers, sums of products of which are exact in any order.
std::vector<BFloat16> whole_numbers(std::int64_t count, std::uint32_t seed) {
  const auto values = testing::numbers(count, seed);
  std::vector<BFloat16> made(values.size());
  for (std::size_t i = 0; i < made.size(); ++i) simd::round_to(made[i], std::round(3 * values[i]));
  return made;
}

struct Example {
  std::int64_t rows, columns, inner;
  bool added = false;
  std::int64_t left_ld = inner + 3, ld = columns + 5;
  std::vector<BFloat16> left = whole_numbers(rows * left_ld, 1);
  std::vector<BFloat16> panel = whole_numbers((inner + 1) * kPanelColumns, 2);
  std::vector<BFloat16> addend = whole_numbers(rows * ld, 3);
  std::vector<BFloat16> made =
      std::vector<BFloat16>(static_cast<std::size_t>(rows * ld), BFloat16{7});

  BFloat16& right(std::int64_t k, std::int64_t j) {
    return panel[static_cast<std::size_t>((k / 2 * kPanelColumns + j) * 2 + k % 2)];
  }
  void run() {
    if (inner % 2 != 0) {
      for (std::int64_t j = 0; j < kPanelColumns; ++j) right(inner, j) = BFloat16{0};
    }
    multiply_rounded({rows, columns, inner, left.data(), left_ld, panel.data(),
                      added ? addend.data() : nullptr, ld, made.data(), ld});
  }
  void check() {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < ld; ++j) {
        const auto at = static_cast<std::size_t>(i * ld + j);
        float sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          sum += simd::widen(left[static_cast<std::size_t>(i * left_ld + k)]) *
                 simd::widen(right(k, j % kPanelColumns));
        }
        if (added) sum += simd::widen(addend[at]);  // last: a sum of zeros is never -0
        const std::uint16_t expected = j < columns ? simd::bfloat16_bits(sum) : 7;
        ASSERT_EQ(made[at].bits, expected)
            << rows << " x " << columns << " x " << inner << " at " << i << ", " << j;
      }
    }
  }
};

class RoundedPanelTest : public testing::SimdTest {};
LOOM_TEST_SIMD_LEVEL(RoundedPanelTest, SimdLevel::kAvx512Bf16);

TEST_P(RoundedPanelTest, EveryNumberOfColumnsAndRows) {
  for (std::int64_t columns = 1; columns <= kPanelColumns; ++columns) {
    for (const std::int64_t rows : {1, 5, 6, 7, 12, 13, 29, 64}) {
      Example example{.rows = rows, .columns = columns, .inner = 6};
      example.run();
      example.check();
    }
  }
}

TEST_P(RoundedPanelTest, InnerElementsThatAreNoPairs) {
  for (const std::int64_t inner : {1, 2, 3, 31, 64, 77}) {
    for (const bool added : {false, true}) {
      Example example{.rows = 20, .columns = 40, .inner = inner, .added = added};
      example.run();
      example.check();
    }
  }
}

// Sums are rounded once, after what is added.
TEST_P(RoundedPanelTest, IsRoundedOnce) {
  Example example{.rows = 1, .columns = 17, .inner = 2, .added = true};
  for (std::int64_t j = 0; j < example.columns; ++j) {
    simd::round_to(example.left[0], 1.F);
    simd::round_to(example.left[1], 1.F);
    simd::round_to(example.right(0, j), 256.F);
    simd::round_to(example.right(1, j), 1.F);
    simd::round_to(example.addend[static_cast<std::size_t>(j)], 1.F);
  }
  example.run();
  for (std::int64_t j = 0; j < example.columns; ++j) {
    EXPECT_EQ(simd::widen(example.made[static_cast<std::size_t>(j)]), 258.F) << "not 256";
  }
}

// What lies behind the last of an odd number of inner elements is not multiplied.
TEST_P(RoundedPanelTest, NanBesideTheLeftOperandIsNotSeen) {
  Example example{.rows = 7, .columns = 33, .inner = 5};
  for (std::int64_t i = 0; i < example.rows; ++i) {
    for (std::int64_t k = example.inner; k < example.left_ld; ++k) {
      simd::round_to(example.left[static_cast<std::size_t>(i * example.left_ld + k)],
                     std::numeric_limits<float>::quiet_NaN());
    }
  }
  example.run();
  example.check();
}

}  // namespace
}  // namespace loom::kernels::gemm
