// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/places.h"

#include "loom/kernels/norm/extrema.h"
#include "loom/simd/float_loops.h"

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

/// A bit for each lane that is not zero.
[[gnu::always_inline]] inline std::uint32_t set_lanes(Bits lanes) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(bits_of<__m512i>(lanes), bits_of<__m512i>(lanes));
#elif defined(__AVX2__)
  return static_cast<std::uint32_t>(_mm256_movemask_ps(bits_of<__m256>(lanes)));
#else
  std::uint32_t set = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) set |= (lanes[lane] & 1) << lane;
  return set;
#endif
}

// Vectors pay for their beginning and end in longer rows.
constexpr std::int64_t kShortRow = 32;

/// One element after the other, without a branch for each.
template <bool kLargest, class T>
[[gnu::always_inline]] inline std::int64_t place_in_short_row(const T* from, std::int64_t count) {
  float best = simd::widen(from[0]);
  std::int64_t place = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    const float value = simd::widen(from[i]);
    const bool better = (kLargest ? value > best : value < best) |
                        (static_cast<int>(value != value) & static_cast<int>(best == best));
    best = better ? value : best;
    place = better ? i : place;
  }
  return place;
}

/// The first element that `is_it`; there is one.
template <class T, class IsIt>
[[gnu::always_inline]] inline std::int64_t first_place(const T* from, std::int64_t count,
                                                       IsIt is_it) {
  std::int64_t i = 0;
  const auto found_at = [&](std::int64_t at) __attribute__((always_inline)) {
    return bits_of<Bits>(is_it(load(from + at)));
  };
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const Bits any = (found_at(i) | found_at(i + kLanes)) |
                     (found_at(i + 2 * kLanes) | found_at(i + 3 * kLanes));
    if (set_lanes(any) != 0) break;
  }
  for (; i + kLanes <= count; i += kLanes) {
    if (const std::uint32_t lanes = set_lanes(found_at(i)); lanes != 0) {
      return i + __builtin_ctz(lanes);
    }
  }
  while (!is_it(simd::widen(from[i]))) ++i;
  return i;
}

/// The columns of one vector, or the first ones of it.
template <bool kLargest, int kVectors, class T>
[[gnu::always_inline]] inline void places_of(const T* from, std::int64_t pitch, std::int64_t rows,
                                             std::int64_t count, std::int64_t* places) {
  Floats best[kVectors];
  Bits place[kVectors] = {};
  for (int v = 0; v < kVectors; ++v) best[v] = get(from, v * kLanes, count, 0);
  for (std::int64_t row = 1; row < rows; ++row) {
    const T* const line = from + row * pitch;
    const Bits here = Bits{} + static_cast<std::uint32_t>(row);
    for (int v = 0; v < kVectors; ++v) {
      const Floats value = get(line, v * kLanes, count, 0);
      const auto better = kLargest ? value > best[v] : value < best[v];
      const auto first_nan = (value != value) & (best[v] == best[v]);
      best[v] = (better | first_nan) ? value : best[v];
      place[v] = (better | first_nan) ? here : place[v];
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    for (std::int64_t lane = 0; lane < count; ++lane) places[v * kLanes + lane] = place[v][lane];
  }
}

template <bool kLargest, class T>
[[gnu::always_inline]] inline void places_of_columns(const T* from, std::int64_t pitch,
                                                     std::int64_t rows, std::int64_t columns,
                                                     std::int64_t* places) {
  std::int64_t column = 0;
  for (; column + kChains * kLanes <= columns; column += kChains * kLanes) {
    places_of<kLargest, kChains>(from + column, pitch, rows, kLanes, places + column);
  }
  for (; column < columns; column += kLanes) {
    const std::int64_t count = columns - column < kLanes ? columns - column : kLanes;
    places_of<kLargest, 1>(from + column, pitch, rows, count, places + column);
  }
}

}  // namespace

template <class T>
std::int64_t extremum_place(const T* from, std::int64_t count, bool largest) noexcept {
  if (count < kShortRow) {
    return largest ? place_in_short_row<true>(from, count) : place_in_short_row<false>(from, count);
  }
  float least, most;
  extrema(from, count, &least, &most);
  const float number = largest ? most : least;
  if (number != number) {
    return first_place(from, count,
                       [](auto value) __attribute__((always_inline)) { return value != value; });
  }
  return first_place(
      from, count, [number](auto value) __attribute__((always_inline)) { return value == number; });
}

template <class T>
void extremum_places(const T* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns,
                     bool largest, std::int64_t* places) noexcept {
  if (largest) {
    places_of_columns<true>(from, pitch, rows, columns, places);
  } else {
    places_of_columns<false>(from, pitch, rows, columns, places);
  }
}

template std::int64_t extremum_place(const float*, std::int64_t, bool) noexcept;
template std::int64_t extremum_place(const simd::BFloat16*, std::int64_t, bool) noexcept;
template std::int64_t extremum_place(const simd::Half*, std::int64_t, bool) noexcept;
template void extremum_places(const float*, std::int64_t, std::int64_t, std::int64_t, bool,
                              std::int64_t*) noexcept;
template void extremum_places(const simd::BFloat16*, std::int64_t, std::int64_t, std::int64_t, bool,
                              std::int64_t*) noexcept;
template void extremum_places(const simd::Half*, std::int64_t, std::int64_t, std::int64_t, bool,
                              std::int64_t*) noexcept;

}  // namespace loom::kernels::norm::LOOM_SIMD
