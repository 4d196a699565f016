// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/largest.h"

namespace loom::kernels::norm::LOOM_SIMD {
namespace {

template <class T>
[[gnu::always_inline]] inline T larger(T a, T b) {
  return a > b ? a : b;
}

// Lanes that do not depend on each other, for the compiler to put into vectors.
template <class T>
[[gnu::always_inline]] inline T largest_in_lanes(const T* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 32;
  T lanes[kLanes];
  for (T& lane : lanes) lane = values[0];
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = larger(values[i + lane], lanes[lane]);
    }
  }
  for (; i < count; ++i) lanes[0] = larger(values[i], lanes[0]);
  for (std::int64_t lane = 1; lane < kLanes; ++lane) lanes[0] = larger(lanes[lane], lanes[0]);
  return lanes[0];
}

}  // namespace

float largest(const float* values, std::int64_t count) noexcept {
  return largest_in_lanes(values, count);
}
double largest(const double* values, std::int64_t count) noexcept {
  return largest_in_lanes(values, count);
}

}  // namespace loom::kernels::norm::LOOM_SIMD
