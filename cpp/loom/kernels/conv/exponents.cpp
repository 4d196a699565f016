// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/exponents.h"

#include "loom/simd/vector_bytes.h"

#include <cstring>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

constexpr int kNotFinite = 255;  // the exponent of infinities and NaN

using Words [[gnu::vector_size(simd::kVectorBytes)]] = std::int32_t;
using Halves [[gnu::vector_size(simd::kVectorBytes)]] = std::uint16_t;

// Sums of as many vectors stay below 2^16.
constexpr std::int64_t kMostHalves = 256;
static_assert(kMostHalves * kNotFinite < 1 << 16);

/// What exponents of a vector's lanes add up to.
template <class Vector>
struct Lanes {
  Vector sum{}, nonzero{}, largest{};

  /// `kFinite`: infinities and NaN are left out.
  template <int kShift, bool kFinite>
  [[gnu::always_inline]] void add(const Vector& bits) {
    const Vector one = Vector{} + 1;
    Vector exponents = (bits >> kShift) & kNotFinite;
    if constexpr (kFinite) exponents = exponents == kNotFinite ? Vector{} : exponents;
    sum += exponents;
    nonzero += exponents < one ? exponents : one;
    largest = exponents > largest ? exponents : largest;
  }
};

/// `most`: vectors whose sums do not overflow.
template <class Vector, int kShift, bool kFinite, class T>
[[gnu::always_inline]] inline Exponents sum_exponents(const T* data, std::int64_t count,
                                                      std::int64_t most) {
  constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(T);
  Exponents made;
  while (count > 0) {
    Lanes<Vector> lanes;
    Vector bits{};
    const std::int64_t whole = count / kLanes < most ? count / kLanes : most;
    for (std::int64_t i = 0; i < whole; ++i, data += kLanes) {
      std::memcpy(&bits, data, sizeof bits);
      lanes.template add<kShift, kFinite>(bits);
    }
    count -= whole * kLanes;
    if (whole < most && count > 0) {
      bits = Vector{};
      std::memcpy(&bits, data, static_cast<std::size_t>(count) * sizeof(T));
      lanes.template add<kShift, kFinite>(bits);
      count = 0;
    }
    for (std::int64_t i = 0; i < kLanes; ++i) {
      made.add({lanes.sum[i], lanes.nonzero[i], lanes.largest[i]});
    }
  }
  return made;
}

// Sums of as many vectors of words stay below 2^31.
constexpr std::int64_t kMostWords = 16384;
static_assert(kMostWords * kNotFinite < std::int64_t{1} << 31);

template <class Vector, int kShift, class T>
[[gnu::always_inline]] inline Exponents exponents(const T* data, std::int64_t count,
                                                  std::int64_t most) {
  const Exponents all = sum_exponents<Vector, kShift, false>(data, count, most);
  if (all.largest != kNotFinite) return all;
  return sum_exponents<Vector, kShift, true>(data, count, most);
}

}  // namespace

Exponents exponents_of(const float* data, std::int64_t count) noexcept {
  return exponents<Words, 23>(data, count, kMostWords);
}
Exponents exponents_of(const simd::BFloat16* data, std::int64_t count) noexcept {
  return exponents<Halves, 7>(data, count, kMostHalves);
}

}  // namespace loom::kernels::conv::LOOM_SIMD
