// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Random permutations. Every number is sent to a bucket of its own random choice; then the buckets,
// one after the other in the result, are shuffled each by itself (Fisher and Yates). All
// permutations come out equally likely, buckets fit the caches, and both steps run on all cores
// (Rao 1961, Sandelius 1962). Which number goes where depends on the stream and n only. Thread:
// any; only what is passed is touched.

#include "loom/base/ceil_div.h"
#include "loom/kernels/rng/stepped_vector.h"
#include "loom/kernels/rng/word_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace loom::kernels::rng {

namespace detail {

constexpr std::int64_t kBucket = 1 << 14;  // numbers of a bucket, about
constexpr std::int64_t kMaxBuckets = 4096;
constexpr std::int64_t kMinSegment = 1 << 16;  // numbers that one block distributes, at least
constexpr std::int64_t kMaxSegments = 64;
constexpr int kDrawWords = 2;    // of one position, for the shuffle
constexpr int kChoiceWords = 1;  // of one number, for its bucket

/// Words of the draws: whole tiles, since the choices come after them.
[[nodiscard]] constexpr std::int64_t words_of_draws(std::int64_t n) noexcept {
  return ceil_div(n, WordReader<kDrawWords>::kValues) * kTileWords;
}

/// Shuffles positions [begin, end), drawing with the words of each position.
template <class T>
void shuffle(const SteppedVector<T>& elements, PhiloxStream draws, std::int64_t begin,
             std::int64_t end) {
  if (end - begin < 2) return;
  WordReader<kDrawWords> reader(draws, begin);
  for (std::int64_t i = begin; i < end; ++i) {
    const auto choices = static_cast<std::uint32_t>(i - begin + 1);
    const auto [low, high] = reader.next();
    const std::uint64_t carry = (std::uint64_t{low} * choices) >> 32;
    const std::uint64_t pick = (std::uint64_t{high} * choices + carry) >> 32;
    std::swap(elements[i], elements[begin + static_cast<std::int64_t>(pick)]);
  }
}

/// Numbers [0, n) cut into segments, and where each segment's numbers of each bucket go.
class Distribution {
 public:
  Distribution(std::int64_t n, PhiloxStream choices)
      : n_(n),
        buckets_(std::min(kMaxBuckets, ceil_div(n, kBucket))),
        segment_(std::max(kMinSegment, ceil_div(n, kMaxSegments))),
        segments_(ceil_div(n, segment_)),
        choices_(choices),
        places_(static_cast<std::size_t>(segments_ * buckets_)),
        begins_(static_cast<std::size_t>(buckets_ + 1)) {}

  [[nodiscard]] std::int64_t buckets() const noexcept { return buckets_; }
  [[nodiscard]] std::int64_t begin_of(std::int64_t bucket) const {
    return begins_[static_cast<std::size_t>(bucket)];
  }

  /// Finds how large the buckets are.
  template <class Run>
  void count(Run&& run) {
    run(segments_, [&](std::int64_t segment) {
      each_choice(segment, [&](std::int64_t, std::int64_t& place) { ++place; });
    });
    std::int64_t sum = 0;
    for (std::int64_t bucket = 0; bucket < buckets_; ++bucket) {
      begins_[static_cast<std::size_t>(bucket)] = sum;
      for (std::int64_t segment = 0; segment < segments_; ++segment) {
        sum += std::exchange(places_[static_cast<std::size_t>(segment * buckets_ + bucket)], sum);
      }
    }
    begins_.back() = sum;
  }

  /// Writes every number into its bucket. Requires: count() has run, once.
  template <class T, class Run>
  void scatter(const SteppedVector<T>& to, Run&& run) {
    run(segments_, [&](std::int64_t segment) {
      each_choice(segment, [&](std::int64_t number, std::int64_t& place) {
        put_number(to[place++], number);
      });
    });
  }

 private:
  /// Calls body(number, place of its bucket) for the numbers of a segment.
  template <class Body>
  void each_choice(std::int64_t segment, Body&& body) {
    const std::int64_t begin = segment * segment_, end = std::min(n_, begin + segment_);
    std::int64_t* const places = places_.data() + segment * buckets_;
    WordReader<kChoiceWords> reader(choices_, begin);
    for (std::int64_t number = begin; number < end; ++number) {
      const std::uint64_t word = reader.next()[0];
      body(number, places[(word * static_cast<std::uint64_t>(buckets_)) >> 32]);
    }
  }

  const std::int64_t n_, buckets_, segment_, segments_;
  const PhiloxStream choices_;
  std::vector<std::int64_t> places_;  // by segment, then bucket: counts, then positions
  std::vector<std::int64_t> begins_;
};

}  // namespace detail

/// Words of the stream that permute() reads.
[[nodiscard]] constexpr std::int64_t words_of_permutation(std::int64_t n) noexcept {
  return detail::words_of_draws(n) + n * detail::kChoiceWords;
}

/// Fills `to` with the numbers [0, n) in random order. `run(blocks, body)` calls body(b) for every
/// block.
template <class T, class Run>
void permute(const SteppedVector<T>& to, std::int64_t n, const PhiloxStream& stream, Run&& run) {
  if (n <= 2 * detail::kBucket) {
    for (std::int64_t i = 0; i < n; ++i) put_number(to[i], i);
    detail::shuffle(to, stream, 0, n);
    return;
  }
  const auto draws = static_cast<std::uint64_t>(detail::words_of_draws(n));
  detail::Distribution distribution(n, {stream.seed, stream.offset + draws});
  distribution.count(run);
  distribution.scatter(to, run);
  run(distribution.buckets(), [&](std::int64_t bucket) {
    detail::shuffle(to, stream, distribution.begin_of(bucket), distribution.begin_of(bucket + 1));
  });
}

}  // namespace loom::kernels::rng
