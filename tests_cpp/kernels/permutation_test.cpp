// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/rng/permutation.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace loom::kernels::rng {
namespace {

constexpr PhiloxStream kStream{7, 64};

template <class T>
std::vector<T> permutation(std::int64_t n, bool backwards = false, std::size_t step = 1) {
  std::vector<T> memory(static_cast<std::size_t>(n) * step), made;
  permute<T>(
      {reinterpret_cast<std::byte*>(memory.data()), static_cast<std::int64_t>(step * sizeof(T))}, n,
      kStream, [&](std::int64_t blocks, const auto& body) {
        for (std::int64_t b = 0; b < blocks; ++b) body(backwards ? blocks - 1 - b : b);
      });
  for (std::size_t i = 0; i < memory.size(); i += step) made.push_back(memory[i]);
  return made;
}

/// Position i of those from `begin` on changes places with one of them up to itself, which the two
/// words of the position choose.
void shuffle_plainly(std::vector<std::int64_t>& numbers, std::size_t begin, std::size_t end) {
  WordReader<2> reader(kStream, static_cast<std::int64_t>(begin));
  for (std::size_t i = begin; i < end; ++i) {
    const auto [low, high] = reader.next();
    const auto word = static_cast<unsigned __int128>(std::uint64_t{high} << 32 | low);
    std::swap(numbers[i], numbers[begin + static_cast<std::size_t>(word * (i - begin + 1) >> 64)]);
  }
}

TEST(PermutationTest, FewNumbersAreShuffledOnce) {
  for (const std::int64_t n : {1, 2, 33, 1000, 1 << 15}) {
    std::vector<std::int64_t> expected(static_cast<std::size_t>(n));
    std::iota(expected.begin(), expected.end(), 0);
    shuffle_plainly(expected, 0, expected.size());
    EXPECT_EQ(permutation<std::int64_t>(n), expected);
  }
}

TEST(PermutationTest, ManyNumbersAreShuffledInBucketsOfTheirChoice) {
  constexpr std::int64_t kCount = 150'001, kBuckets = 10;  // in three segments
  const auto draws = static_cast<std::uint64_t>(words_of_permutation(kCount) - kCount);
  WordReader<1> choices({kStream.seed, kStream.offset + draws}, 0);
  std::vector<std::vector<std::int64_t>> buckets(kBuckets);
  for (std::int64_t i = 0; i < kCount; ++i) {
    buckets[std::uint64_t{choices.next()[0]} * kBuckets >> 32].push_back(i);
  }
  std::vector<std::int64_t> expected;
  for (const auto& bucket : buckets) {
    const std::size_t begin = expected.size();
    expected.insert(expected.end(), bucket.begin(), bucket.end());
    shuffle_plainly(expected, begin, expected.size());
  }
  EXPECT_EQ(permutation<std::int64_t>(kCount), expected);
  EXPECT_EQ(permutation<std::int64_t>(kCount, /*backwards=*/true), expected);
}

TEST(PermutationTest, IsTheSameForEveryTypeAndStep) {
  const auto expected = permutation<std::int64_t>(1000);
  const auto floats = permutation<float>(1000, false, /*step=*/3);
  const auto halves = permutation<simd::Half>(1000);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(floats[i], expected[i]);
    EXPECT_EQ(simd::widen(halves[i]), expected[i]);
  }
}

}  // namespace
}  // namespace loom::kernels::rng
