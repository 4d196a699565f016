// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums over the lanes of several vectors at once; for files as floats.h is for. Thread: any.

#include "loom/simd/floats.h"

#include <utility>

namespace loom::simd::LOOM_SIMD {
namespace detail {

/// Two vectors that have sums of `chunk` lanes each twice as many become one: what lane `lane` of
/// it adds to the lane `chunk` further. Lanes of the second vector count from kLanes on. Lanes are
/// taken as instructions can: of 16 bytes at a time, or within those.
constexpr int joined_lane(int chunk, int lane) {
  const auto lanes = static_cast<int>(kLanes);
  if (chunk >= 4) {
    const int group = lane / chunk, groups = lanes / (2 * chunk);
    return group / groups * lanes + group % groups * 2 * chunk + lane % chunk;
  }
  const int first = lane / 4 * 4, place = lane % 4;
  return place / 2 * lanes + first + place % 2 * (chunk == 1 ? 2 : 1);
}

struct LaneOrder {
  int place[kLanes];
};
/// Where a vector has to be among all for its sum to come into the lane of its number.
constexpr LaneOrder lane_order() {
  int from[kLanes][kLanes] = {};
  for (int v = 0; v < kLanes; ++v) {
    for (int lane = 0; lane < kLanes; ++lane) from[v][lane] = v;
  }
  for (int chunk = kLanes / 2; chunk > 0; chunk /= 2) {
    for (int v = 0; v < chunk; ++v) {
      int joined[kLanes] = {};
      for (int lane = 0; lane < kLanes; ++lane) {
        const int source = joined_lane(chunk, lane);
        joined[lane] = from[2 * v + source / kLanes][source % kLanes];
      }
      for (int lane = 0; lane < kLanes; ++lane) from[v][lane] = joined[lane];
    }
  }
  LaneOrder order{};
  for (int lane = 0; lane < kLanes; ++lane) order.place[lane] = from[0][lane];
  return order;
}
inline constexpr LaneOrder kLaneOrder = lane_order();

template <int kChunk, class Vector, int... kLane>
[[gnu::always_inline]] inline Vector joined(Vector a, Vector b,
                                            std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, joined_lane(kChunk, kLane)...) +
         __builtin_shufflevector(a, b, (joined_lane(kChunk, kLane) + kChunk)...);
}

template <int kChunk, class Vector>
[[gnu::always_inline]] inline void join(Vector* vectors) {
#pragma GCC unroll 8
  for (int v = 0; v < kChunk; ++v) {
    vectors[v] = joined<kChunk>(vectors[2 * v], vectors[2 * v + 1],
                                std::make_integer_sequence<int, static_cast<int>(kLanes)>());
  }
  if constexpr (kChunk > 1) join<kChunk / 2>(vectors);
}

}  // namespace detail

/// Lane i is the sum over the lanes of vector i, of Floats or Bits. Three operations a vector,
/// where each vector by itself takes some ten.
template <class Vector>
[[gnu::always_inline]] inline Vector sums_of_lanes(const Vector (&vectors)[kLanes]) {
  Vector ordered[kLanes];
#pragma GCC unroll 16
  for (int v = 0; v < kLanes; ++v) ordered[detail::kLaneOrder.place[v]] = vectors[v];
  detail::join<static_cast<int>(kLanes / 2)>(ordered);
  return ordered[0];
}

}  // namespace loom::simd::LOOM_SIMD
