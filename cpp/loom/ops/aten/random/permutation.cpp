// SPDX-License-Identifier: BSD-3-Clause
// randperm. Every number is sent to a bucket of its own random choice; then the buckets, one after
// the other in the result, are shuffled each by itself (Fisher and Yates). All permutations come
// out equally likely, buckets fit the caches, and both steps run on all cores (Rao 1961,
// Sandelius 1962). Which number goes where depends on the seed, the offset and n only.
#include "loom/base/ceil_div.h"
#include "loom/kernels/rng/word_reader.h"
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>

#include <algorithm>
#include <vector>

namespace loom::ops::random {
namespace {

using kernels::rng::WordReader;

constexpr std::int64_t kBucket = 1 << 14;  // numbers of a bucket, about
constexpr std::int64_t kMaxBuckets = 4096;
constexpr std::int64_t kMinSegment = 1 << 16;  // numbers that one block distributes, at least
constexpr std::int64_t kMaxSegments = 64;
constexpr int kDrawWords = 2;    // of one position, for the shuffle
constexpr int kChoiceWords = 1;  // of one number, for its bucket

// A vector of T with a step in memory.
template <class T>
struct Elements {
  std::byte* data;
  std::int64_t step;  // bytes
  T& operator[](std::int64_t i) const { return *reinterpret_cast<T*>(data + i * step); }
};

// Shuffles positions [begin, end), drawing with the words of each position.
template <class T>
void shuffle(Elements<T> elements, PhiloxStream draws, std::int64_t begin, std::int64_t end) {
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

// Numbers [0, n) cut into segments, and where each segment's numbers of each bucket go.
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
  [[nodiscard]] std::int64_t begin_of(std::int64_t bucket) const { return begins_[bucket]; }

  // Finds how large the buckets are.
  void count(Grid& grid) {
    grid.run(segments_, [&](std::int64_t segment) {
      each_choice(segment, [&](std::int64_t, std::int64_t& place) { ++place; });
    });
    std::int64_t sum = 0;
    for (std::int64_t bucket = 0; bucket < buckets_; ++bucket) {
      begins_[bucket] = sum;
      for (std::int64_t segment = 0; segment < segments_; ++segment) {
        std::int64_t& place = places_[segment * buckets_ + bucket];
        const std::int64_t length = place;
        place = sum;
        sum += length;
      }
    }
    begins_[buckets_] = sum;
  }

  // Writes every number into its bucket. Requires: count() has run, once.
  template <class T>
  void scatter(Grid& grid, Elements<T> elements) {
    grid.run(segments_, [&](std::int64_t segment) {
      each_choice(segment, [&](std::int64_t number, std::int64_t& place) {
        elements[place++] = static_cast<T>(number);
      });
    });
  }

 private:
  // Calls body(number, place of its bucket) for the numbers of a segment.
  template <class Body>
  void each_choice(std::int64_t segment, Body&& body) {
    const std::int64_t begin = segment * segment_;
    const std::int64_t end = std::min(n_, begin + segment_);
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

template <class T>
void permutation_kernel(Grid& grid, const TensorRef& result, const PhiloxStream& stream) {
  const std::int64_t n = result.numel();
  const Elements<T> elements{result.data(), result.strides()[0] * std::int64_t{sizeof(T)}};
  if (n <= 2 * kBucket) {
    for (std::int64_t i = 0; i < n; ++i) elements[i] = static_cast<T>(i);
    shuffle(elements, stream, 0, n);
    return;
  }
  const auto draw_tiles = static_cast<std::uint64_t>(ceil_div(n, WordReader<kDrawWords>::kValues));
  Distribution distribution(n, {stream.seed, stream.offset + draw_tiles * kTileWords});
  distribution.count(grid);
  distribution.scatter(grid, elements);
  grid.run(distribution.buckets(), [&](std::int64_t bucket) {
    shuffle(elements, stream, distribution.begin_of(bucket), distribution.begin_of(bucket + 1));
  });
}

}  // namespace

at::Tensor& randperm_out(std::int64_t n, OptionalGenerator generator, at::Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(!generator || result.device() == generator->device(), "Expected a '", result.device(),
              "' generator device but found '", generator->device(), "'");
  // A probe on the host, since the check makes a scalar of that dtype.
  at::native::check_supported_max_int_with_precision(
      n, at::detail::empty_cpu({0}, result.scalar_type()));
  result.resize_({n});
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, result.scalar_type(), "randperm", [&] {
    if (n == 0) return;
    // Whole tiles of draws, then the choices.
    const std::int64_t draws = ceil_div(n, WordReader<kDrawWords>::kValues) * kTileWords;
    const ReservedWords words = reserve(generator, result.device(), draws + n * kChoiceWords, 1);
    launch("randperm", Custom{}, permutation_kernel<scalar_t>, out(result), words);
  });
  return result;
}

}  // namespace loom::ops::random
