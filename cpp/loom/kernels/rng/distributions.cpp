// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/rng/distributions.h"

#include "loom/kernels/rng/math.h"

namespace loom::kernels::rng::LOOM_SIMD {
namespace {

using math::sin_cos;
using math::SinCos;
using math::to_real;

constexpr double kTwoPi = 6.283185307179586;

// A word, or two words as one number, from which a real number is made.
template <class T>
using Source = math::Format<T>::Bits;

// The i-th source of a tile; a wide one is made of words that lie half a tile apart.
template <class T>
LOOM_RNG_INLINE Source<T> source(const std::uint32_t* words, int i) {
  if constexpr (sizeof(T) == sizeof(std::uint32_t)) {
    return words[i];
  } else {
    return words[i] | std::uint64_t{words[i + kTileWords / 2]} << 32;
  }
}

// In [0, 1), all bits that the type holds.
LOOM_RNG_INLINE float unit(std::uint32_t source) {
  return static_cast<float>(static_cast<std::int32_t>(source >> 8)) * 0x1p-24F;
}
LOOM_RNG_INLINE double unit(std::uint64_t source) {
  // 26 and 27 bits: conversions of 32-bit integers are what all vector units have.
  const double high = static_cast<std::int32_t>(source >> 38);
  const double low = static_cast<std::int32_t>(static_cast<std::uint32_t>(source) >> 5);
  return (high * 0x1p27 + low) * 0x1p-53;
}

// In (0, 1] with full precision near 0; 1 itself only by rounding.
LOOM_RNG_INLINE float positive_unit(std::uint32_t source) {
  return (static_cast<float>(static_cast<std::int32_t>(source >> 1)) + 0.5F) * 0x1p-31F;
}
LOOM_RNG_INLINE double positive_unit(std::uint64_t source) {
  return (to_real<double>(source >> 12) + 0.5) * 0x1p-52;
}

// ln u of u in (0, 1), below 0 always.
template <class T>
LOOM_RNG_INLINE T log_unit(Source<T> source) {
  constexpr T kBelowOne = sizeof(T) == sizeof(float) ? T(1 - 0x1p-24) : T(1 - 0x1p-53);
  const T u = positive_unit(source);
  return math::log(u < kBelowOne ? u : kBelowOne);
}

// A uniform angle as the nearest multiple of a quarter turn and the distance from it, which is
// never 0.
template <class T>
struct Angle {
  T radians;
  Source<T> quarters;
};

LOOM_RNG_INLINE Angle<float> angle(std::uint32_t source) {
  const std::uint32_t quarters = (source + (1U << 29)) >> 30;
  const auto rest = static_cast<std::int32_t>(source - (quarters << 30));
  return {(static_cast<float>(rest) + 0.5F) * static_cast<float>(kTwoPi * 0x1p-32), quarters};
}
LOOM_RNG_INLINE Angle<double> angle(std::uint64_t source) {
  const std::uint64_t centred = source + (std::uint64_t{1} << 61);
  const std::uint64_t rest = (centred << 2) >> 12;  // 52 bits of a quarter turn
  return {(to_real<double>(rest) - (0x1p51 - 0.5)) * (kTwoPi * 0x1p-54), centred >> 62};
}

// Two independent standard normals.
template <class T>
LOOM_RNG_INLINE SinCos<T> normal_pair(Source<T> radius_source, Source<T> angle_source) {
  const T radius = __builtin_sqrt(T{-2} * math::log(positive_unit(radius_source)));
  const Angle<T> turn = angle(angle_source);
  const SinCos<T> point = sin_cos(turn.radians, turn.quarters);
  return {radius * point.sin, radius * point.cos};
}

template <class T>
LOOM_RNG_INLINE void tile(const Uniform<T>& distribution, const std::uint32_t* words, T* values) {
  for (int i = 0; i < kTileValues<Uniform<T>>; ++i) {
    const T value = distribution.from + unit(source<T>(words, i)) * distribution.range;
    values[i] = value < distribution.last ? value : distribution.last;
  }
}

template <class T>
LOOM_RNG_INLINE void tile(const Normal<T>& distribution, const std::uint32_t* words, T* values) {
  constexpr int kHalf = kTileValues<Normal<T>> / 2;
  for (int i = 0; i < kHalf; ++i) {
    const auto [sin, cos] = normal_pair<T>(source<T>(words, i), source<T>(words, i + kHalf));
    values[i] = cos * distribution.std + distribution.mean;
    values[i + kHalf] = sin * distribution.std + distribution.mean;
  }
}

template <class T>
LOOM_RNG_INLINE void tile(const LogNormal<T>& distribution, const std::uint32_t* words, T* values) {
  tile(Normal<T>{distribution.mean, distribution.std}, words, values);
  for (int i = 0; i < kTileValues<LogNormal<T>>; ++i) values[i] = math::exp(values[i]);
}

template <class T>
LOOM_RNG_INLINE void tile(const Exponential<T>& distribution, const std::uint32_t* words,
                          T* values) {
  for (int i = 0; i < kTileValues<Exponential<T>>; ++i) {
    values[i] = -log_unit<T>(source<T>(words, i)) * distribution.scale;
  }
}

template <class T>
LOOM_RNG_INLINE void tile(const Cauchy<T>& distribution, const std::uint32_t* words, T* values) {
  // The tangent has the period of half a turn: an angle in a full one serves as well.
  for (int i = 0; i < kTileValues<Cauchy<T>>; ++i) {
    const Angle<T> turn = angle(source<T>(words, i));
    const auto [sin, cos] = sin_cos(turn.radians, turn.quarters);
    values[i] = distribution.median + distribution.sigma * (sin / cos);
  }
}

LOOM_RNG_INLINE void tile(const Geometric& distribution, const std::uint32_t* words,
                          double* values) {
  for (int i = 0; i < kTileValues<Geometric>; ++i) {
    values[i] = __builtin_ceil(log_unit<double>(source<double>(words, i)) * distribution.scale);
  }
}

LOOM_RNG_INLINE void tile(const ShortIntegers& distribution, const std::uint32_t* words,
                          std::int64_t* values) {
  const auto range = static_cast<std::uint32_t>(distribution.range);
  for (int i = 0; i < kTileWords; ++i) {
    const std::uint64_t product = std::uint64_t{words[i]} * range;
    values[i] = distribution.base + static_cast<std::int64_t>(product >> 32);
  }
}

LOOM_RNG_INLINE void tile(const MediumIntegers& distribution, const std::uint32_t* words,
                          std::int64_t* values) {
  const auto range = static_cast<std::uint32_t>(distribution.range);
  for (int i = 0; i < kTileWords / 2; ++i) {
    const std::uint64_t low = std::uint64_t{words[i]} * range;
    const std::uint64_t high = std::uint64_t{words[i + kTileWords / 2]} * range;
    values[i] = distribution.base + static_cast<std::int64_t>((high + (low >> 32)) >> 32);
  }
}

LOOM_RNG_INLINE void tile(const LongIntegers& distribution, const std::uint32_t* words,
                          std::int64_t* values) {
  using Wide = unsigned __int128;
  constexpr int kCount = kTileWords / 4;
  for (int i = 0; i < kCount; ++i) {
    const std::uint64_t low = words[i] | std::uint64_t{words[i + kCount]} << 32;
    const std::uint64_t high = words[i + 2 * kCount] | std::uint64_t{words[i + 3 * kCount]} << 32;
    const Wide carry = (static_cast<Wide>(low) * distribution.range) >> 64;
    const Wide picked = (static_cast<Wide>(high) * distribution.range + carry) >> 64;
    // Unsigned, since the sum may pass through the largest integer on its way to a negative one.
    values[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(distribution.base) +
                                          static_cast<std::uint64_t>(picked));
  }
}

LOOM_RNG_INLINE void tile(const AllBits&, const std::uint32_t* words, std::int64_t* values) {
  for (int i = 0; i < kTileValues<AllBits>; ++i) {
    values[i] = static_cast<std::int64_t>(source<double>(words, i));
  }
}

LOOM_RNG_INLINE void tile(const Bernoulli& distribution, const std::uint32_t* words,
                          std::uint8_t* values) {
  for (int i = 0; i < kTileWords; ++i) values[i] = distribution(words[i]) ? 1 : 0;
}

template <class Distribution>
LOOM_RNG_INLINE void tiles_of(const Distribution& distribution, const std::uint32_t* words,
                              std::int64_t tiles, typename Distribution::Value* values) {
  const Distribution parameters = distribution;  // a copy that stores cannot alias
  for (std::int64_t t = 0; t < tiles; ++t) {
    tile(parameters, words + t * kTileWords, values + t * kTileValues<Distribution>);
  }
}

}  // namespace

#define LOOM_TRANSFORM(Distribution)                                                               \
  void transform(const Distribution& distribution, const std::uint32_t* words, std::int64_t tiles, \
                 Distribution::Value* values) noexcept {                                           \
    tiles_of(distribution, words, tiles, values);                                                  \
  }
LOOM_TRANSFORM(Uniform<float>)
LOOM_TRANSFORM(Uniform<double>)
LOOM_TRANSFORM(Normal<float>)
LOOM_TRANSFORM(Normal<double>)
LOOM_TRANSFORM(LogNormal<float>)
LOOM_TRANSFORM(LogNormal<double>)
LOOM_TRANSFORM(Exponential<float>)
LOOM_TRANSFORM(Exponential<double>)
LOOM_TRANSFORM(Cauchy<float>)
LOOM_TRANSFORM(Cauchy<double>)
LOOM_TRANSFORM(Geometric)
LOOM_TRANSFORM(ShortIntegers)
LOOM_TRANSFORM(MediumIntegers)
LOOM_TRANSFORM(LongIntegers)
LOOM_TRANSFORM(AllBits)
LOOM_TRANSFORM(Bernoulli)
#undef LOOM_TRANSFORM

}  // namespace loom::kernels::rng::LOOM_SIMD
