// SPDX-License-Identifier: BSD-3-Clause
// Distributions as functions of words: what the extreme words give, moments, and that the bits are
// the same wherever the tests run. The operators are tested from Python (test_random_ops.py).
#include "loom/kernels/rng/distributions.h"

#include "loom/kernels/rng/philox.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace loom::kernels::rng {
namespace {

constexpr std::uint32_t kAllOnes = 0xffffffff;

template <class Distribution>
std::vector<typename Distribution::Value> values_of(const Distribution& distribution,
                                                    const std::vector<std::uint32_t>& words,
                                                    SimdLevel level = simd_level()) {
  const auto tiles = static_cast<std::int64_t>(words.size()) / kTileWords;
  std::vector<typename Distribution::Value> values(
      static_cast<std::size_t>(tiles * kTileValues<Distribution>));
  transform<Distribution>.of(level)(distribution, words.data(), tiles, values.data());
  return values;
}

// Values of `tiles` tiles of a fixed stream.
template <class Distribution>
std::vector<typename Distribution::Value> sample(const Distribution& distribution,
                                                 std::int64_t tiles,
                                                 SimdLevel level = simd_level()) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(tiles) * kTileWords);
  philox_tiles({2024, 0}, 0, tiles, words.data());
  return values_of(distribution, words, level);
}

// One tile of the same word, which is what the tails of a distribution are made of.
template <class Distribution>
std::vector<typename Distribution::Value> of_word(const Distribution& distribution,
                                                  std::uint32_t word) {
  return values_of(distribution, std::vector<std::uint32_t>(kTileWords, word));
}

struct Moments {
  double mean = 0, std = 0;
};

template <class Value>
Moments moments(const std::vector<Value>& values) {
  const double count = static_cast<double>(values.size());
  double sum = 0;
  double squares = 0;
  for (const Value value : values) sum += static_cast<double>(value);
  const double mean = sum / count;
  for (const Value value : values) {
    squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  }
  return {mean, std::sqrt(squares / count)};
}

// FNV-1a over the bytes.
template <class Value>
std::uint64_t fingerprint(const std::vector<Value>& values) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < values.size() * sizeof(Value); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return hash;
}

template <class T>
class RealDistributionTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RealDistributionTest, Reals);

TYPED_TEST(RealDistributionTest, UniformIncludesFromAndNeverPassesLast) {
  using T = TypeParam;
  const T last = std::nextafter(T{3}, T{-2});
  const Uniform<T> uniform{T{-2}, T{5}, last};
  EXPECT_EQ(of_word(uniform, 0)[0], T{-2});
  for (const T value : of_word(uniform, kAllOnes)) EXPECT_LE(value, last);
}

TYPED_TEST(RealDistributionTest, TailsAreFinite) {
  using T = TypeParam;
  for (const std::uint32_t word : {0U, 1U, 0x3fffffffU, 0x40000000U, 0x7fffffffU, 0x80000000U,
                                   0xbfffffffU, 0xc0000000U, kAllOnes}) {
    for (const T value : of_word(Normal<T>{0, 1}, word)) EXPECT_LT(std::fabs(value), 9);
    for (const T value : of_word(Exponential<T>{1}, word)) {
      EXPECT_GT(value, 0);
      EXPECT_LT(value, 40);
    }
    for (const T value : of_word(Cauchy<T>{0, 1}, word)) EXPECT_TRUE(std::isfinite(value));
  }
}

TYPED_TEST(RealDistributionTest, MomentsAreThoseOfTheDistribution) {
  using T = TypeParam;
  constexpr std::int64_t kTiles = 1 << 15;
  const Moments uniform = moments(sample(Uniform<T>{-1, 4, 3}, kTiles));
  EXPECT_NEAR(uniform.mean, 1, 0.005);
  EXPECT_NEAR(uniform.std, 4 / std::sqrt(12), 0.005);
  const Moments normal = moments(sample(Normal<T>{3, 2}, kTiles));
  EXPECT_NEAR(normal.mean, 3, 0.01);
  EXPECT_NEAR(normal.std, 2, 0.01);
  const Moments log_normal = moments(sample(LogNormal<T>{0, 0.5}, kTiles));
  EXPECT_NEAR(log_normal.mean, std::exp(0.125), 0.005);
  EXPECT_NEAR(log_normal.std, std::sqrt((std::exp(0.25) - 1) * std::exp(0.25)), 0.005);
  const Moments exponential = moments(sample(Exponential<T>{2}, kTiles));
  EXPECT_NEAR(exponential.mean, 2, 0.01);
  EXPECT_NEAR(exponential.std, 2, 0.02);
}

TYPED_TEST(RealDistributionTest, HalvesOfAPairOfNormalsAreUncorrelated) {
  using T = TypeParam;
  const auto values = sample(Normal<T>{0, 1}, 1 << 14);
  constexpr int kTile = kTileValues<Normal<T>>;
  double product = 0;
  for (std::size_t i = 0; i < values.size(); i += kTile) {
    for (int j = 0; j < kTile / 2; ++j) product += values[i + j] * values[i + j + kTile / 2];
  }
  EXPECT_NEAR(product / (static_cast<double>(values.size()) / 2), 0, 0.01);
}

TYPED_TEST(RealDistributionTest, HalfOfCauchyLiesWithinSigma) {
  const auto values = sample(Cauchy<TypeParam>{1, 2}, 1 << 13);
  const auto within = std::count_if(values.begin(), values.end(),
                                    [](auto value) { return std::fabs(value - 1) < 2; });
  EXPECT_NEAR(static_cast<double>(within) / static_cast<double>(values.size()), 0.5, 0.005);
}

TEST(DiscreteDistributionTest, GeometricBeginsAtOne) {
  const Geometric geometric{1 / std::log1p(-0.25)};
  for (const double value : of_word(geometric, kAllOnes)) EXPECT_EQ(value, 1);
  EXPECT_NEAR(moments(sample(geometric, 1 << 14)).mean, 4, 0.03);
}

template <class Distribution>
class IntegersTest : public ::testing::Test {};
using Integral = ::testing::Types<ShortIntegers, MediumIntegers, LongIntegers>;
TYPED_TEST_SUITE(IntegersTest, Integral);

TYPED_TEST(IntegersTest, CoverTheirRangeEvenly) {
  const auto values = sample(TypeParam{10, -3}, 1 << 14);
  std::vector<std::int64_t> counts(10);
  for (const std::int64_t value : values) {
    ASSERT_GE(value, -3);
    ASSERT_LT(value, 7);
    ++counts[static_cast<std::size_t>(value + 3)];
  }
  for (const std::int64_t count : counts) {
    EXPECT_NEAR(static_cast<double>(count) / static_cast<double>(values.size()), 0.1, 0.003);
  }
}

TYPED_TEST(IntegersTest, ExtremeWordsGiveTheEnds) {
  EXPECT_EQ(of_word(TypeParam{50'257, 5}, 0)[0], 5);
  EXPECT_EQ(of_word(TypeParam{50'257, 5}, kAllOnes)[0], 50'261);
}

TEST(DiscreteDistributionTest, LongIntegersReachAcrossAllOfInt64) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::lowest();
  const LongIntegers all_but_one{std::numeric_limits<std::uint64_t>::max(), kLowest};
  EXPECT_EQ(of_word(all_but_one, 0)[0], kLowest);
  EXPECT_EQ(of_word(all_but_one, kAllOnes)[0], std::numeric_limits<std::int64_t>::max() - 1);
}

TEST(DiscreteDistributionTest, BernoulliIsCertainAtTheEnds) {
  for (const auto value : of_word(Bernoulli(0), 0)) EXPECT_EQ(value, 0);
  for (const auto value : of_word(Bernoulli(1), kAllOnes)) EXPECT_EQ(value, 1);
  EXPECT_NEAR(moments(sample(Bernoulli(0.3), 1 << 14)).mean, 0.3, 0.002);
}

class DistributionBitsTest : public testing::SimdTest {
 protected:
  template <class Distribution>
  std::uint64_t bits(const Distribution& distribution) {
    return fingerprint(sample(distribution, 1000, GetParam()));
  }
};
LOOM_TEST_SIMD_LEVELS(DistributionBitsTest);

TEST_P(DistributionBitsTest, AreTheSameOfAllInstructionSets) {
  EXPECT_EQ(bits(Uniform<float>{-3, 8, 5}), 0x42183bda904b7976ULL);
  EXPECT_EQ(bits(Uniform<double>{-3, 8, 5}), 0x2ff15f053121a9aaULL);
  EXPECT_EQ(bits(Normal<float>{1, 2}), 0x8e2994e902c06918ULL);
  EXPECT_EQ(bits(Normal<double>{1, 2}), 0xe2f0111f3b92a8aaULL);
  EXPECT_EQ(bits(LogNormal<float>{1, 2}), 0xf28b909329330cc3ULL);
  EXPECT_EQ(bits(LogNormal<double>{1, 2}), 0x9d0166a90c829bdaULL);
  EXPECT_EQ(bits(Exponential<float>{3}), 0x154d8243927208a3ULL);
  EXPECT_EQ(bits(Exponential<double>{3}), 0x47cb9ac60be5940cULL);
  EXPECT_EQ(bits(Cauchy<float>{1, 2}), 0xcee211a2323c78afULL);
  EXPECT_EQ(bits(Cauchy<double>{1, 2}), 0xc31702b162997d89ULL);
}

TEST_P(DistributionBitsTest, OfIntegersAreThoseOfTheScalarCode) {
  const auto expect_equal = [&]<class Distribution>(const Distribution& distribution) {
    EXPECT_EQ(sample(distribution, 100, GetParam()), sample(distribution, 100, SimdLevel::kScalar));
  };
  expect_equal(Geometric{1 / std::log1p(-0.25)});
  expect_equal(ShortIntegers{1000, -3});
  expect_equal(MediumIntegers{1'000'000'000, -3});
  expect_equal(LongIntegers{std::uint64_t{1} << 60, -3});
  expect_equal(AllBits{});
  expect_equal(Bernoulli(0.3));
}

}  // namespace
}  // namespace loom::kernels::rng
