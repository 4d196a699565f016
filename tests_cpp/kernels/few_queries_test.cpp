// SPDX-License-Identifier: BSD-3-Clause
// Attention of a few queries, against the formulas in double precision.
#include "loom/kernels/attention/few_queries.h"

#include "loom/kernels/copy/convert_row.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include "support/simd_levels.h"
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace loom::kernels::attention {
namespace {

using testing::elements;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
struct Case {
  std::int64_t rows, count, size;
  std::int64_t key_stride = size + 3, value_stride = size + 5;
  std::vector<T> query = elements<T>(rows * size, 1, 2);
  std::vector<T> keys = elements<T>(count * key_stride, 2);
  std::vector<T> values = elements<T>(count * value_stride, 3);
  std::vector<T> mask = elements<T>(rows * count, 4, 3);
  bool masked = false;
  std::vector<std::int64_t> visible = std::vector<std::int64_t>(rows, count);

  [[nodiscard]] double score(std::int64_t row, std::int64_t key) const {
    if (key >= visible[row]) return -kInfinity;
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      sum += double{simd::widen(query[row * size + i])} * simd::widen(keys[key * key_stride + i]);
    }
    return sum * 0.25 + (masked ? simd::widen(mask[row * count + key]) : 0);
  }
};

// Half units in the last place of numbers about 1: products of up to 128 elements, exp, and sums of
// up to 100 weights, which are divided; of a logarithm about 8.
constexpr double kAllowed = 16 * 0x1p-24, kAllowedOfLogarithm = 8 * 4 * 0x1p-24;

class FewQueriesTest : public testing::SimdTest {
 protected:
  /// Keys [first, first + count) of the case as one part.
  template <class T>
  std::vector<float> part(const Case<T>& c, std::int64_t first, std::int64_t count) {
    const std::int64_t ld = padded_row(c.size);
    std::vector<float> queries(c.rows * ld), scores(c.rows * padded_row(count));
    std::vector<float> parts(c.rows * part_floats(c.size));
    std::vector<const T*> masks;
    std::vector<std::int64_t> visible;
    for (std::int64_t row = 0; row < c.rows; ++row) {
      widen_row<T>.of(GetParam())(&queries[row * ld], &c.query[row * c.size], c.size);
      masks.push_back(&c.mask[row * c.count + first]);
      visible.push_back(c.visible[row] - first);
    }
    attend_part<T>.of(GetParam())({.rows = c.rows,
                                   .elements = c.size,
                                   .queries = queries.data(),
                                   .keys = &c.keys[first * c.key_stride],
                                   .key_stride = c.key_stride,
                                   .values = &c.values[first * c.value_stride],
                                   .value_stride = c.value_stride,
                                   .count = count,
                                   .visible = visible.data(),
                                   .masks = c.masked ? masks.data() : nullptr,
                                   .scale = 0.25F,
                                   .scores = scores.data(),
                                   .parts = parts.data()});
    return parts;
  }

  template <class T>
  void expect_row(const Case<T>& c, std::int64_t row, const std::vector<float>& parts,
                  std::int64_t count) {
    std::vector<T> made(c.size);
    float log_sum = 0;
    combine_parts<T>.of(GetParam())(made.data(), &parts[row * part_floats(c.size)],
                                    c.rows * part_floats(c.size), count, c.size, &log_sum);
    double sum = 0;
    for (std::int64_t key = 0; key < c.count; ++key) sum += std::exp(c.score(row, key));
    EXPECT_NEAR(log_sum, sum == 0 ? 0 : std::log(sum), kAllowedOfLogarithm);
    for (std::int64_t i = 0; i < c.size; ++i) {
      double value = 0;
      for (std::int64_t key = 0; key < c.count; ++key) {
        value += std::exp(c.score(row, key)) * simd::widen(c.values[key * c.value_stride + i]);
      }
      const double expected = sum == 0 ? 0 : value / sum;
      EXPECT_NEAR(simd::widen(made[i]), expected, kAllowed + testing::rounding_of<T>(expected))
          << row << ' ' << i;
    }
  }

  template <class T>
  void expect_attention(const Case<T>& c) {
    const auto whole = part(c, 0, c.count);
    for (std::int64_t row = 0; row < c.rows; ++row) expect_row(c, row, whole, 1);
    if (c.count < 40) return;
    auto parts = part(c, 0, 32);
    const auto rest = part(c, 32, c.count - 32);
    parts.insert(parts.end(), rest.begin(), rest.end());
    for (std::int64_t row = 0; row < c.rows; ++row) expect_row(c, row, parts, 2);
  }

  template <class T>
  void expect_sizes() {
    for (const std::int64_t rows : {1, 2, 3, 4, 7}) {
      for (const std::int64_t size : {1, 16, 20, 64, 100, 128}) {
        for (const std::int64_t count : {1, 15, 33, 100}) {
          expect_attention(Case<T>{.rows = rows, .count = count, .size = size});
        }
      }
    }
  }
};
LOOM_TEST_SIMD_LEVELS(FewQueriesTest);

TEST_P(FewQueriesTest, OfFloats) { expect_sizes<float>(); }
TEST_P(FewQueriesTest, OfBFloat16) { expect_sizes<simd::BFloat16>(); }
TEST_P(FewQueriesTest, OfHalf) { expect_sizes<simd::Half>(); }

TEST_P(FewQueriesTest, MasksAreAdded) {
  expect_attention(Case<float>{.rows = 3, .count = 70, .size = 24, .masked = true});
}

TEST_P(FewQueriesTest, RowsSeeSomeKeysOrNone) {
  expect_attention(Case<float>{.rows = 3, .count = 70, .size = 24, .visible = {0, 1, 50}});
}

TEST_P(FewQueriesTest, HiddenKeysAreFound) {
  std::vector<float> mask(100, -kInfinity);
  EXPECT_TRUE(hides_all<float>.of(GetParam())(mask.data(), 100));
  mask[99] = 0;
  EXPECT_FALSE(hides_all<float>.of(GetParam())(mask.data(), 100));
  EXPECT_TRUE(hides_all<float>.of(GetParam())(mask.data(), 99));
}

TEST(KeysSeenTest, GroupsAreLeftOutThatNoRowSees) {
  constexpr std::int64_t kCount = 5 * kKeyGroup + 3;
  // One row sees the keys [first, first + 1), the other [last - 1, last).
  const auto seen = [](std::int64_t first, std::int64_t last) {
    std::vector<float> one(kCount, -kInfinity), other = one;
    one[static_cast<std::size_t>(first)] = other[static_cast<std::size_t>(last - 1)] = 0;
    const float* const masks[] = {one.data(), other.data()};
    const KeyRange keys = keys_seen(masks, 2, kCount);
    return std::pair(keys.first, keys.last);
  };
  EXPECT_EQ(seen(0, kCount), std::pair(std::int64_t{0}, kCount));
  EXPECT_EQ(seen(kKeyGroup - 1, kCount - 3), std::pair(std::int64_t{0}, 5 * kKeyGroup));
  EXPECT_EQ(seen(kKeyGroup, kCount - 2), std::pair(kKeyGroup, kCount));
  EXPECT_EQ(seen(3 * kKeyGroup, 3 * kKeyGroup + 1), std::pair(3 * kKeyGroup, 4 * kKeyGroup));
  EXPECT_EQ(seen(2, 3), std::pair(std::int64_t{0}, kKeyGroup));
  const std::vector<float> none(kCount, -kInfinity);
  const float* const masks[] = {none.data()};
  EXPECT_EQ(keys_seen(masks, 1, kCount).last, kKeyGroup);
}

}  // namespace
}  // namespace loom::kernels::attention
