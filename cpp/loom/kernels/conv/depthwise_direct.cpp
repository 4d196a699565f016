// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/depthwise_direct.h"

#include "loom/simd/lanes.h"

#include <algorithm>
#include <utility>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

using simd::LOOM_SIMD::all;
using simd::LOOM_SIMD::Floats;
using simd::LOOM_SIMD::kLanes;
using simd::LOOM_SIMD::Lanes;
using simd::LOOM_SIMD::lanes_between;
using simd::LOOM_SIMD::load;
using simd::LOOM_SIMD::load_lanes;
using simd::LOOM_SIMD::store;
using simd::LOOM_SIMD::store_part;

template <int kFirst, int... kIndex>
[[gnu::always_inline]] inline Floats every_second(Floats low, Floats high,
                                                  std::integer_sequence<int, kIndex...>) {
  return __builtin_shufflevector(low, high, (2 * kIndex + kFirst)...);
}

/// The lanes of a row of the plane in a vector that begins at `column`.
[[gnu::always_inline]] inline Lanes lanes_of(std::int64_t column, std::int64_t columns) {
  return lanes_between(-column, columns - column);
}

/// What the taps of a row of windows see of a row of the plane: kKernel vectors.
template <int kKernel, int kStride>
struct Row {
  // A pair of vectors has what two neighbouring taps with stride 2 see.
  static constexpr int kLoads = kStride == 1 ? kKernel : kKernel / 2 * 2 + 2;

  std::int64_t first;  ///< the column that the first tap sees in the first lane
  Lanes lanes[kLoads];

  [[gnu::always_inline]] static std::int64_t offset(int load) {
    return kStride == 1 ? load : load / 2 * 2 + load % 2 * kLanes;
  }
  /// Whether all that is loaded is of the plane.
  [[nodiscard]] static bool is_inside(std::int64_t first, std::int64_t columns) {
    return first >= 0 && first + offset(kLoads - 1) + kLanes <= columns;
  }
  [[gnu::always_inline]] Row(std::int64_t column, std::int64_t columns) : first(column) {
#pragma GCC unroll 8
    for (int i = 0; i < kLoads; ++i) lanes[i] = lanes_of(first + offset(i), columns);
  }

  template <bool kInside>
  [[gnu::always_inline]] Floats read(const float* row, int i) const {
    const float* const from = row + first + offset(i);
    if constexpr (kInside) return load(from);
    return load_lanes(from, lanes[i]);
  }
  template <bool kInside>
  [[gnu::always_inline]] void see(const float* row, Floats* seen) const {
    if constexpr (kStride == 1) {
#pragma GCC unroll 8
      for (int j = 0; j < kKernel; ++j) seen[j] = read<kInside>(row, j);
    } else {
      constexpr auto kIndices = std::make_integer_sequence<int, kLanes>();
#pragma GCC unroll 8
      for (int j = 0; j < kKernel; j += 2) {
        const Floats low = read<kInside>(row, j), high = read<kInside>(row, j + 1);
        seen[j] = every_second<0>(low, high, kIndices);
        if (j + 1 < kKernel) seen[j + 1] = every_second<1>(low, high, kIndices);
      }
    }
  }
};

// A vector of pixels in each of kRows rows of the result: what one of them sees its neighbours see,
// too.
template <int kRows, int kKernel, int kStride, bool kInside>
[[gnu::always_inline]] inline void sum_vectors(const float* image, const Row<kKernel, kStride>& row,
                                               const Floats* weights, Floats bias, std::int64_t top,
                                               const DirectPlane& p, float* to,
                                               std::int64_t count) {
  Floats sums[kRows];
  for (int y = 0; y < kRows; ++y) sums[y] = bias;
#pragma GCC unroll 16
  for (int i = 0; i < (kRows - 1) * kStride + kKernel; ++i) {
    if (top + i < 0 || top + i >= p.rows) continue;
    Floats seen[kKernel];
    row.template see<kInside>(image + (top + i) * p.columns, seen);
#pragma GCC unroll 8
    for (int j = 0; j < kKernel; ++j) {
#pragma GCC unroll 8
      for (int y = 0; y < kRows; ++y) {
        const int k = i - y * kStride;
        if (k >= 0 && k < kKernel) sums[y] += seen[j] * weights[k * kKernel + j];
      }
    }
  }
  for (int y = 0; y < kRows; ++y) {
    if (kInside || count >= kLanes) {
      store(to + y * p.step, sums[y]);
    } else {
      store_part(to + y * p.step, sums[y], count);
    }
  }
}

template <int kRows, int kKernel, int kStride>
[[gnu::always_inline]] inline void sum_rows(const float* image, const Floats* weights, Floats bias,
                                            std::int64_t row, const DirectPlane& p, float* to) {
  const std::int64_t top = row * kStride - p.padding_y;
  for (std::int64_t x = 0; x < p.result_columns; x += kLanes) {
    const std::int64_t first = x * kStride - p.padding_x, count = p.result_columns - x;
    const Row<kKernel, kStride> seen(first, p.columns);
    if (count >= kLanes && Row<kKernel, kStride>::is_inside(first, p.columns)) {
      sum_vectors<kRows, kKernel, kStride, true>(image, seen, weights, bias, top, p,
                                                 to + row * p.step + x, count);
    } else {
      sum_vectors<kRows, kKernel, kStride, false>(image, seen, weights, bias, top, p,
                                                  to + row * p.step + x, count);
    }
  }
}

template <int kKernel, int kStride>
void sum_plane(const float* image, const float* weights, float bias, const DirectPlane& p,
               float* to) {
  // More rows than a vector's latency hides need more registers than there are.
  constexpr int kRows = 4;
  Floats spread[kKernel * kKernel];
  for (int tap = 0; tap < kKernel * kKernel; ++tap) spread[tap] = all(weights[tap]);
  const Floats from = all(bias);
  std::int64_t y = p.first;
  for (; y + kRows <= p.last; y += kRows) {
    sum_rows<kRows, kKernel, kStride>(image, spread, from, y, p, to);
  }
  if (y + 2 <= p.last) {
    sum_rows<2, kKernel, kStride>(image, spread, from, y, p, to);
    y += 2;
  }
  if (y < p.last) sum_rows<1, kKernel, kStride>(image, spread, from, y, p, to);
}

}  // namespace

void depthwise_direct(const float* image, const float* weights, float bias, const DirectPlane& p,
                      float* to) noexcept {
  if (p.stride == 1) {
    if (p.kernel == 3) return sum_plane<3, 1>(image, weights, bias, p, to);
    if (p.kernel == 5) return sum_plane<5, 1>(image, weights, bias, p, to);
    return sum_plane<7, 1>(image, weights, bias, p, to);
  }
  if (p.kernel == 3) return sum_plane<3, 2>(image, weights, bias, p, to);
  if (p.kernel == 5) return sum_plane<5, 2>(image, weights, bias, p, to);
  sum_plane<7, 2>(image, weights, bias, p, to);
}

}  // namespace loom::kernels::conv::LOOM_SIMD
