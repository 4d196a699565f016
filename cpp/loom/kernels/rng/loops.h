// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Loops over contiguous memory around random numbers. All instruction sets give the same bits.
// Thread: any; there is no state.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::rng {

/// What numbers in memory are computed in.
template <class T>
struct Computed {
  using Type = float;
};
template <>
struct Computed<double> {
  using Type = double;
};

#define LOOM_ROUND(T) void round_all(const float* from, T* to, std::int64_t count) noexcept;
#define LOOM_SCALE(T)                                                                 \
  void scale_kept(const T* from, const std::uint8_t* kept, T* to, std::int64_t count, \
                  Computed<T>::Type scale) noexcept;
LOOM_SIMD_DECLARE(LOOM_ROUND(simd::Half)      //
                  LOOM_ROUND(simd::BFloat16)  //
                  LOOM_SCALE(float)           //
                  LOOM_SCALE(double)          //
                  LOOM_SCALE(simd::Half)      //
                  LOOM_SCALE(simd::BFloat16))
#undef LOOM_ROUND
#undef LOOM_SCALE

/// Rounds `count` values to the nearest T (a half type), ties to even.
template <class T>
inline constexpr simd::Versions<void(const float* from, T* to, std::int64_t count) noexcept>
    round_all{LOOM_SIMD_LIST(round_all)};

/// to[i] = from[i] * kept[i] * scale, kept[i] being 0 or 1: a product and not a choice, for the
/// sake of NaN, infinity and the sign of 0. `to` may be `from`.
template <class T>
inline constexpr simd::Versions<void(const T* from, const std::uint8_t* kept, T* to,
                                     std::int64_t count, typename Computed<T>::Type scale) noexcept>
    scale_kept{LOOM_SIMD_LIST(scale_kept)};

/// kept[i] = words[i] / 2^32 < p[i]. False when some p is not in [0, 1].
LOOM_SIMD_VERSIONS(compare, bool(const std::uint32_t* words, const double* p, std::uint8_t* kept,
                                 std::int64_t count) noexcept);

}  // namespace loom::kernels::rng
