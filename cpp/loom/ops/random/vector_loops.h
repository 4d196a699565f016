// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Loops over contiguous memory that are worth wide vector units: compiled as transform() is, for
// every instruction set, with the same bits from all. Thread: any; there is no state.

#include <ATen/OpMathType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace loom::ops::random {

/// Rounds `count` values to the nearest, ties to even.
void narrow(const float* from, c10::Half* to, std::int64_t count) noexcept;
void narrow(const float* from, c10::BFloat16* to, std::int64_t count) noexcept;

/// kept[i] = words[i] / 2^32 < p[i]. False when some p is not in [0, 1].
[[nodiscard]] bool compare(const std::uint32_t* words, const double* p, std::uint8_t* kept,
                           std::int64_t count) noexcept;

/// to[i] = from[i] * kept[i] * scale, kept[i] being 0 or 1: a product and not a choice, for the
/// sake of NaN, infinity and the sign of 0.
template <class T>
[[gnu::always_inline]] inline T scale_kept(T from, std::uint8_t kept, at::opmath_type<T> scale) {
  using Real = at::opmath_type<T>;
  return static_cast<T>(static_cast<Real>(from) * static_cast<Real>(kept) * scale);
}
void scale_kept(const float* from, const std::uint8_t* kept, float* to, std::int64_t count,
                float scale) noexcept;
void scale_kept(const double* from, const std::uint8_t* kept, double* to, std::int64_t count,
                double scale) noexcept;
void scale_kept(const c10::Half* from, const std::uint8_t* kept, c10::Half* to, std::int64_t count,
                float scale) noexcept;
void scale_kept(const c10::BFloat16* from, const std::uint8_t* kept, c10::BFloat16* to,
                std::int64_t count, float scale) noexcept;

}  // namespace loom::ops::random
