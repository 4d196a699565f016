// SPDX-License-Identifier: BSD-3-Clause
// What attention does with tiles of scores, against the formulas in double precision.
#include "loom/kernels/attention/tiles.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace loom::kernels::attention {
namespace {

using simd::BFloat16;
using testing::elements;
using testing::exact;
using testing::ulps;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// exp alone.
constexpr double kExpUlps = 2;
// Of sums of up to 100 weights and values.
constexpr double kSumUlps = 8;
// Half a unit in the last place, and some float32 error that decides ties.
template <class T>
constexpr double kWeightUlps = sizeof(T) == 2 ? 0.51 : kExpUlps;

template <class T>
struct SoftmaxCase {
  std::int64_t rows = 5, columns = 100, padded = 112, visible = 100, more = 0;
  std::int64_t ld = 128, result_columns = 20;
  bool masked = false;
  float scale = 0.125F;
  std::vector<float> products = elements<float>(rows * ld, 1, 40);
  std::vector<T> mask = elements<T>(rows * ld, 2, 4);
  std::vector<float> maximum = std::vector<float>(5, -kInfinity), sum = std::vector<float>(5);
  std::vector<float> results = elements<float>(rows * ld, 3);

  /// A score as a float has it: the product is rounded before the mask is added to it.
  [[nodiscard]] float score(std::int64_t row, std::int64_t column) const {
    const volatile float product = products[row * ld + column] * scale;
    return masked ? product + simd::widen(mask[row * ld + column]) : product;
  }
};

class AttentionTilesTest : public testing::SimdTest {
 protected:
  template <class T>
  void expect_softmax(const SoftmaxCase<T>& c) {
    auto scores = c.products, maximum = c.maximum, sum = c.sum, results = c.results;
    std::vector<T> apart(scores.size());
    T* weights = apart.data();
    if constexpr (sizeof(T) == sizeof(float)) weights = scores.data();
    softmax_tile<T>.of(GetParam())({.rows = c.rows,
                                    .columns = c.columns,
                                    .padded = c.padded,
                                    .visible = c.visible,
                                    .more = c.more,
                                    .scale = c.scale,
                                    .scores = scores.data(),
                                    .scores_ld = c.ld,
                                    .mask = c.masked ? c.mask.data() : nullptr,
                                    .mask_ld = c.ld,
                                    .weights = weights,
                                    .weights_ld = c.ld,
                                    .maximum = maximum.data(),
                                    .sum = sum.data(),
                                    .results = results.data(),
                                    .results_ld = c.ld,
                                    .result_columns = c.result_columns});
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const std::int64_t visible = std::min(c.visible + row * c.more, c.columns);
      float most = c.maximum[row];
      for (std::int64_t j = 0; j < visible; ++j) most = std::max(most, c.score(row, j));
      EXPECT_EQ(maximum[row], most);
      const float reference = most == -kInfinity ? 0 : most;
      const double factor = std::exp(double{c.maximum[row] - reference});
      double all = c.sum[row] * factor;
      for (std::int64_t j = 0; j < c.padded; ++j) {
        const double weight = j < visible ? std::exp(double{c.score(row, j) - reference}) : 0;
        all += weight;
        EXPECT_LE(ulps(weights[row * c.ld + j], weight), kWeightUlps<T>) << row << ", " << j;
      }
      EXPECT_LE(ulps(sum[row], all), kSumUlps);
      for (std::int64_t i = 0; i < c.ld; ++i) {
        const float before = c.results[row * c.ld + i];
        const double expected = i < c.result_columns ? before * factor : before;
        EXPECT_LE(ulps(results[row * c.ld + i], expected), kExpUlps + 1) << row << ", " << i;
      }
    }
  }

  template <class T>
  void expect_all_softmax() {
    SoftmaxCase<T> c;
    expect_softmax(c);
    c.masked = true;
    expect_softmax(c);
    c.visible = -1;  // the first row sees nothing, nor does the second one
    c.more = 1;
    expect_softmax(c);
    c.visible = 97;
    expect_softmax(c);
    for (std::size_t row = 0; row < 5; ++row) {
      c.maximum[row] = row < 3 ? 1 : 20;
      c.sum[row] = 2.5F;
    }
    expect_softmax(c);
  }

  template <class T>
  void expect_rows() {
    constexpr std::int64_t kRows = 3, kLd = 140;
    for (const std::int64_t columns : {1, 16, 40, 64, 127}) {
      const auto from = elements<float>(kRows * kLd, 4);
      const auto a = elements<T>(kRows * kLd, 5), b = elements<T>(kRows * kLd, 6);
      const std::vector<float> maximum = {2, -kInfinity, -3}, sum = {4, 0, 1.5F};
      std::vector<T> finished(from.size()), stored(from.size());
      std::vector<float> log_sums(kRows), products(kRows);
      finish_rows<T>.of(GetParam())(finished.data(), kLd, from.data(), kLd, kRows, columns,
                                    maximum.data(), sum.data(), log_sums.data());
      store_rows<T>.of(GetParam())(stored.data(), kLd, from.data(), kLd, kRows, columns);
      row_products<T>.of(GetParam())(products.data(), a.data(), kLd, b.data(), kLd, kRows, columns);
      EXPECT_LE(ulps(log_sums[0], 2 + std::log(4)), 1);
      EXPECT_EQ(log_sums[1], 0);
      EXPECT_LE(ulps(log_sums[2], std::log(1.5) - 3), 1);
      for (std::int64_t row = 0; row < kRows; ++row) {
        double product = 0;
        for (std::int64_t i = row * kLd; i < row * kLd + columns; ++i) {
          const double divisor = row == 1 ? 1 : sum[row];
          EXPECT_LE(ulps(finished[i], from[i] / divisor), sizeof(T) == 2 ? 0.51 : 1.5);
          EXPECT_LE(ulps(stored[i], from[i]), sizeof(T) == 2 ? 0.5 : 0);
          product += exact(a[i]) * exact(b[i]);
        }
        EXPECT_EQ(exact(stored[row * kLd + columns]), 0) << "beyond the row";
        EXPECT_NEAR(products[row], product, 127 * 0x1p-24);
      }
    }
  }

  template <class T>
  void expect_gradients(bool causal, bool masked) {
    constexpr std::int64_t kRows = 37, kColumns = 48, kHidden = -5;
    constexpr float kScale = 0.25F;
    constexpr std::size_t kSize = kTile * kTile;
    const auto products = elements<float>(kSize, 7, 8), mask = elements<float>(kSize, 8),
               slopes = elements<float>(kSize, 9), log_sums = elements<float>(kTile, 10),
               of_query = elements<float>(kTile, 11);
    auto scores = products, gradients = slopes;
    std::vector<T> weights(kSize), plain(kSize), packed(kSize);
    GradientTile<T> tile{.rows = kRows,
                         .columns = kColumns,
                         .hidden = kHidden,
                         .causal = causal,
                         .scale = kScale,
                         .log_sums = log_sums.data(),
                         .products = of_query.data(),
                         .mask = masked ? mask.data() : nullptr,
                         .scores = scores.data(),
                         .gradients = gradients.data(),
                         .weights = weights.data(),
                         .score_gradients = plain.data(),
                         .packed_gradients = packed.data()};
    if constexpr (sizeof(T) == sizeof(float)) {
      tile.weights = tile.scores;
      tile.score_gradients = tile.packed_gradients = tile.gradients;
    }
    tile_weights<T>.of(GetParam())(tile);
    const auto made = scores;  // the weights in float
    tile_gradients<T>.of(GetParam())(tile);
    for (std::int64_t row = 0; row < kTile; ++row) {
      for (std::int64_t j = 0; j < kColumns; ++j) {
        const std::int64_t at = row * kTile + j;
        // As a right operand bfloat16 keys lie in pairs, and those after the last one are 0.
        const T packed_one = sizeof(T) == 2
                                 ? tile.packed_gradients[row / 2 * 2 * kTile + 2 * j + row % 2]
                                 : tile.packed_gradients[at];
        if (row >= kRows) {
          if (row < 48) {
            EXPECT_EQ(exact(packed_one), 0) << row;
          }
          continue;
        }
        const float score = products[at] * kScale + (masked ? mask[at] : 0);
        const bool hidden = causal && j < kHidden + row;
        const double weight = hidden ? 0 : std::exp(double{score - log_sums[j]});
        EXPECT_LE(ulps(made[at], weight), kExpUlps) << row << ", " << j;
        EXPECT_LE(ulps(tile.weights[at], double{made[at]}), sizeof(T) == 2 ? 0.5 : 0);
        const double gradient =
            double{made[at]} * static_cast<double>(slopes[at] - of_query[j]) * kScale;
        EXPECT_LE(ulps(packed_one, gradient), sizeof(T) == 2 ? 0.51 : 1.5);
        EXPECT_EQ(exact(tile.score_gradients[at]), exact(packed_one));
      }
    }
  }

  template <class T>
  void expect_all_gradients() {
    expect_gradients<T>(false, false);
    expect_gradients<T>(true, false);
    expect_gradients<T>(true, true);
  }

  template <class T>
  void expect_turned() {
    constexpr std::int64_t kRows = 50, kColumns = 33, kLd = 70;
    const auto mask = elements<T>(kRows * kLd, 12);
    std::vector<float> to(kTile * kTile, 7);
    turn_mask<T>.of(GetParam())(to.data(), mask.data(), kLd, kRows, kColumns);
    for (std::int64_t i = 0; i < kTile; ++i) {
      for (std::int64_t j = 0; j < kTile; ++j) {
        EXPECT_EQ(to[j * kTile + i],
                  i < kRows && j < kColumns ? simd::widen(mask[i * kLd + j]) : 0);
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(AttentionTilesTest);

TEST_P(AttentionTilesTest, SoftmaxOfFloats) { expect_all_softmax<float>(); }
TEST_P(AttentionTilesTest, SoftmaxOfBFloat16) { expect_all_softmax<BFloat16>(); }
TEST_P(AttentionTilesTest, RowsOfFloats) { expect_rows<float>(); }
TEST_P(AttentionTilesTest, RowsOfBFloat16) { expect_rows<BFloat16>(); }
TEST_P(AttentionTilesTest, GradientsOfFloats) { expect_all_gradients<float>(); }
TEST_P(AttentionTilesTest, GradientsOfBFloat16) { expect_all_gradients<BFloat16>(); }
TEST_P(AttentionTilesTest, MasksAreTurned) {
  expect_turned<float>();
  expect_turned<BFloat16>();
}

// However large scores are, the largest one has the weight 1: products are rounded before their
// maximum is subtracted.
TEST_P(AttentionTilesTest, TheLargestScoreHasTheWeightOne) {
  SoftmaxCase<float> c;
  c.scale = 1 / 3.F;
  for (float& product : c.products) product *= 1e9F;
  expect_softmax(c);
}

}  // namespace
}  // namespace loom::kernels::attention
