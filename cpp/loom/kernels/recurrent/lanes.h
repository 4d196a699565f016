// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Vectors of float32 and the activations of recurrent cells, to be inlined into files that are
// compiled for several instruction sets (simd/versions.h). Vectors go by reference: passed by value
// their calling convention would depend on the instruction set. Thread: any.

#include "loom/simd/vector_bytes.h"

#include <cstdint>
#include <cstring>

namespace loom::kernels::recurrent {

using Lanes [[gnu::vector_size(simd::kVectorBytes)]] = float;
using Words [[gnu::vector_size(simd::kVectorBytes)]] = std::int32_t;
constexpr std::int64_t kLanes = sizeof(Lanes) / sizeof(float);

/// The first `count` lanes; the rest is 0. Requires: 1 <= count <= kLanes.
template <bool kWhole>
[[gnu::always_inline]] inline void load(const float* from, std::int64_t count, Lanes& to) {
  if constexpr (kWhole) {
    std::memcpy(&to, from, sizeof to);
  } else {
    to = Lanes{};
    std::memcpy(&to, from, static_cast<std::size_t>(count) * sizeof(float));
  }
}
template <bool kWhole>
[[gnu::always_inline]] inline void store(const Lanes& from, std::int64_t count, float* to) {
  std::memcpy(to, &from, kWhole ? sizeof from : static_cast<std::size_t>(count) * sizeof(float));
}

/// x = exp(x) - 1, to 2 units in the last place; bounded where float32 nearly ends.
[[gnu::always_inline]] inline void exp_minus_1(Lanes& x) {
  constexpr float kBound = 87;
  // Adding and subtracting it rounds to an integer.
  constexpr float kRounder = 0x1.8p23F;
  constexpr float kLog2E = 0x1.715476p0F;
  // ln 2 in two parts, the first short enough that its multiples are exact.
  constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 0x1.7f7d1cp-20F;
  // Not written as max and min, which would lose NaN.
  x = x > kBound ? Lanes{} + kBound : x;
  x = x < -kBound ? Lanes{} - kBound : x;
  const Lanes power = (x * kLog2E + kRounder) - kRounder;
  const Lanes rest = x - power * kLn2High - power * kLn2Low;
  // Taylor's series: |rest| <= ln 2 / 2, so that the first term left out is below 6e-9.
  Lanes sum = rest * (1.0F / 5040) + 1.0F / 720;
  sum = sum * rest + 1.0F / 120;
  sum = sum * rest + 1.0F / 24;
  sum = sum * rest + 1.0F / 6;
  sum = sum * rest + 0.5F;
  sum = sum * rest * rest + rest;
  const Words bits = (__builtin_convertvector(power, Words) + 127) << 23;
  Lanes scale;
  std::memcpy(&scale, &bits, sizeof scale);
  x = scale * sum + (scale - 1.0F);
}

[[gnu::always_inline]] inline void sigmoid(Lanes& x) {
  x = -x;
  exp_minus_1(x);
  x = 1.0F / (x + 2.0F);
}

[[gnu::always_inline]] inline void tanh(Lanes& x) {
  x = x + x;
  exp_minus_1(x);
  x = x / (x + 2.0F);
}

}  // namespace loom::kernels::recurrent
