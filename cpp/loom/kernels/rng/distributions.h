// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Distributions as functions of Philox words. Each turns the words of whole tiles into the values
// of whole tiles: kTileWords / kWords of them, in the type Value, the i-th depending on the words
// of its own tile only (pairs of normals share theirs). All instruction sets give the same bits.
// Thread: any; there is no state.

#include "loom/kernels/rng/philox.h"

#include <cmath>
#include <cstdint>

namespace loom::kernels::rng {

/// Words that one value of a continuous distribution takes.
template <class T>
inline constexpr int kRealWords = sizeof(T) / sizeof(std::uint32_t);

/// from + u * range, at most `last`, with u in [0, 1) of 24 or 53 bits.
template <class T>
struct Uniform {
  using Value = T;
  static constexpr int kWords = kRealWords<T>;
  T from, range, last;
};

/// Box-Muller: the two halves of a tile hold the cosines and the sines.
template <class T>
struct Normal {
  using Value = T;
  static constexpr int kWords = kRealWords<T>;
  T mean, std;
};

/// exp of a Normal.
template <class T>
struct LogNormal {
  using Value = T;
  static constexpr int kWords = kRealWords<T>;
  T mean, std;
};

/// -ln(u) * scale, u in (0, 1): never 0 before rounding to a smaller type.
template <class T>
struct Exponential {
  using Value = T;
  static constexpr int kWords = kRealWords<T>;
  T scale;
};

/// median + sigma * tan(pi u), u in (-1/2, 1/2).
template <class T>
struct Cauchy {
  using Value = T;
  static constexpr int kWords = kRealWords<T>;
  T median, sigma;
};

/// ceil(ln(u) * scale), u in (0, 1), where scale = 1 / ln(1 - p): at least 1.
struct Geometric {
  using Value = double;
  static constexpr int kWords = 2;
  double scale;
};

/// base + an integer in [0, range). A product's upper half picks it, so its probability differs
/// from 1 / range by less than range / 2^(32 kWords) of that.
template <int kWordsPerValue>
struct Integers {
  using Value = std::int64_t;
  static constexpr int kWords = kWordsPerValue;
  std::uint64_t range;
  std::int64_t base;
};
/// For ranges up to 2^16, below 2^32, and any.
using ShortIntegers = Integers<1>;
using MediumIntegers = Integers<2>;
using LongIntegers = Integers<4>;

/// Any 64 bits.
struct AllBits {
  using Value = std::int64_t;
  static constexpr int kWords = 2;
};

/// 1 with the probability that it was made for, to 2^-32; else 0.
class Bernoulli {
 public:
  using Value = std::uint8_t;
  static constexpr int kWords = 1;
  /// Requires: 0 <= p <= 1.
  explicit Bernoulli(double p) noexcept
      : threshold_(static_cast<std::uint64_t>(std::llround(p * 0x1p32))) {}

  [[nodiscard, gnu::always_inline]] bool operator()(std::uint32_t word) const noexcept {
    return word < threshold_;
  }

 private:
  std::uint64_t threshold_;  // of 2^32
};

/// Values of `distribution` in one tile.
template <class Distribution>
inline constexpr int kTileValues = kTileWords / Distribution::kWords;

#define LOOM_TRANSFORM(Distribution)                                                               \
  void transform(const Distribution& distribution, const std::uint32_t* words, std::int64_t tiles, \
                 Distribution::Value* values) noexcept;
LOOM_SIMD_DECLARE(LOOM_TRANSFORM(Uniform<float>)       //
                  LOOM_TRANSFORM(Uniform<double>)      //
                  LOOM_TRANSFORM(Normal<float>)        //
                  LOOM_TRANSFORM(Normal<double>)       //
                  LOOM_TRANSFORM(LogNormal<float>)     //
                  LOOM_TRANSFORM(LogNormal<double>)    //
                  LOOM_TRANSFORM(Exponential<float>)   //
                  LOOM_TRANSFORM(Exponential<double>)  //
                  LOOM_TRANSFORM(Cauchy<float>)        //
                  LOOM_TRANSFORM(Cauchy<double>)       //
                  LOOM_TRANSFORM(Geometric)            //
                  LOOM_TRANSFORM(ShortIntegers)        //
                  LOOM_TRANSFORM(MediumIntegers)       //
                  LOOM_TRANSFORM(LongIntegers)         //
                  LOOM_TRANSFORM(AllBits)              //
                  LOOM_TRANSFORM(Bernoulli))
#undef LOOM_TRANSFORM

/// Writes the values of `tiles` tiles, whose words these are, to `values`.
template <class Distribution>
inline constexpr simd::Versions<void(const Distribution& distribution, const std::uint32_t* words,
                                     std::int64_t tiles,
                                     typename Distribution::Value* values) noexcept>
    transform{LOOM_SIMD_LIST(transform)};

}  // namespace loom::kernels::rng
