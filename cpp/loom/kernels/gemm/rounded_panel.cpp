// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/rounded_panel.h"

#include <immintrin.h>
#include <utility>

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

using simd::BFloat16;

constexpr std::int64_t kFloats = 16;  // of a vector
// Rows that are summed up together, by vectors in a row of the panel: as many as there are
// registers for, and enough for a sum not to wait for the one before.
constexpr int kMostRows[] = {0, 12, 12, 8, 6};

// The first of a pair is in the lower half.
__m512bh both(const BFloat16* pair) {
  int bits;
  __builtin_memcpy(&bits, pair, sizeof(bits));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}
__m512bh with_zero(const BFloat16* last) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(last->bits));
}

__m512 to_floats(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// Masked stores are slow.
void store(BFloat16* to, __m512 sums, __mmask16 mask) {
  const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sums));
  if (mask == 0xFFFF) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
  } else {
    _mm256_mask_storeu_epi16(to, mask, rounded);
  }
}
// Two vectors, the second of which has the columns of `mask`.
void store(BFloat16* to, __m512 low, __m512 high, __mmask16 mask) {
  const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  if (mask == 0xFFFF) {
    _mm512_storeu_si512(to, rounded);
  } else {
    _mm512_mask_storeu_epi16(to, __mmask32{mask} << 16 | 0xFFFFU, rounded);
  }
}

// kRows x kVectors sums, the last vector of which has the columns of `mask`.
template <int kRows, int kVectors>
void multiply_tile(const RoundedPanel& p, std::int64_t row, __mmask16 mask) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_setzero_ps();
  }
  const BFloat16* left = p.left + row * p.left_ld;
  const auto* pairs = reinterpret_cast<const std::uint32_t*>(p.panel);
  const auto add = [&](auto load) {
    __m512bh right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      right[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(pairs + v * kFloats));
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const __m512bh pair = load(left + i * p.left_ld);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], pair, right[v]);
    }
  };
  for (std::int64_t k = 0; k + 1 < p.inner; k += 2, left += 2, pairs += kPanelColumns) add(both);
  if (p.inner % 2 != 0) add(with_zero);

  const BFloat16* addend = p.addend + (p.addend == nullptr ? 0 : row * p.addend_ld);
  BFloat16* to = p.to + row * p.ld;
  const __m512 scale = _mm512_set1_ps(p.scale), addend_scale = _mm512_set1_ps(p.addend_scale);
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i, to += p.ld) {
    if (p.scale != 1) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_mul_ps(sums[i][v], scale);
    }
    if (p.addend != nullptr) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __mmask16 read = v + 1 < kVectors ? 0xFFFF : mask;
        const __m256i added = _mm256_maskz_loadu_epi16(read, addend + v * kFloats);
        sums[i][v] = _mm512_add_ps(sums[i][v], _mm512_mul_ps(to_floats(added), addend_scale));
      }
      addend += p.addend_ld;
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v += 2) {
      if (v + 1 < kVectors) {
        store(to + v * kFloats, sums[i][v], sums[i][v + 1], v + 2 < kVectors ? 0xFFFF : mask);
      } else {
        store(to + v * kFloats, sums[i][v], mask);
      }
    }
  }
}

using Tile = void (*)(const RoundedPanel&, std::int64_t, __mmask16);

// The tiles of 1 to kMostRows rows.
template <int kVectors, int... kRows>
constexpr Tile tile_of(int rows, std::integer_sequence<int, kRows...> /*rows*/) {
  constexpr Tile kTiles[] = {&multiply_tile<kRows + 1, kVectors>...};
  return kTiles[rows - 1];
}

template <int kVectors>
void multiply_columns(const RoundedPanel& p, __mmask16 mask) {
  constexpr int kMost = kMostRows[kVectors];
  // Of about the same number of rows: one row alone waits for its sums.
  const std::int64_t tiles = (p.rows + kMost - 1) / kMost;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t row = p.rows * tile / tiles, end = p.rows * (tile + 1) / tiles;
    tile_of<kVectors>(static_cast<int>(end - row), std::make_integer_sequence<int, kMost>())(p, row,
                                                                                             mask);
  }
}

}  // namespace

void multiply_rounded(const RoundedPanel& p) noexcept {
  const auto rest = static_cast<int>(p.columns % kFloats);
  const auto mask = static_cast<__mmask16>(rest == 0 ? 0xFFFF : (1 << rest) - 1);
  switch ((p.columns + kFloats - 1) / kFloats) {
    case 1:
      return multiply_columns<1>(p, mask);
    case 2:
      return multiply_columns<2>(p, mask);
    case 3:
      return multiply_columns<3>(p, mask);
    default:
      return multiply_columns<4>(p, mask);
  }
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
