// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/recurrent/row_product.h"

#include "loom/simd/floats.h"

namespace loom::kernels::recurrent::LOOM_SIMD {
namespace {

using simd::LOOM_SIMD::all;
using simd::LOOM_SIMD::Floats;
using simd::LOOM_SIMD::kLanes;
using simd::LOOM_SIMD::load;
using simd::LOOM_SIMD::store;

// Sums of several rows of the panel run beside each other, so that none waits for the one before.
template <int kColumns>
[[gnu::always_inline]] inline void multiply(const float* row, std::int64_t inner,
                                            const float* panel, float* to) {
  constexpr int kVectors = kColumns / static_cast<int>(kLanes);
  constexpr int kRows = kVectors >= 12 ? 1 : 12 / kVectors;
  // Ahead of what the processor fetches by itself into the first-level cache.
  constexpr std::int64_t kAhead = 16;
  Floats sums[kRows][kVectors] = {};
  std::int64_t k = 0;
  for (; k + kRows <= inner; k += kRows) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats value = all(row[k + r]);
      const float* const from = panel + (k + r) * kColumns;
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        if (v * kLanes % 16 == 0) __builtin_prefetch(from + kAhead * kColumns + v * kLanes);
        sums[r][v] += value * load(from + v * kLanes);
      }
    }
  }
  for (; k < inner; ++k) {
    const Floats value = all(row[k]);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[0][v] += value * load(panel + k * kColumns + v * kLanes);
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    Floats sum = sums[0][v];
#pragma GCC unroll 8
    for (int r = 1; r < kRows; ++r) sum += sums[r][v];
    store(to + v * kLanes, sum);
  }
}

}  // namespace

void multiply_row(const float* row, std::int64_t inner, const float* panel, std::int64_t columns,
                  float* to) noexcept {
  if (columns == 48) {
    multiply<48>(row, inner, panel, to);
  } else {
    multiply<64>(row, inner, panel, to);
  }
}

}  // namespace loom::kernels::recurrent::LOOM_SIMD
