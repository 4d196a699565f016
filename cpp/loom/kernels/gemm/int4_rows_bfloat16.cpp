// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/int4_group.h"
#include "loom/kernels/gemm/int4_rows.h"

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

// Bytes of an inner element, each of which has the weights of two columns.
constexpr std::int64_t kBytes = kMaxInt4Columns / 2;

/// The bits of `words` that `mask` has, in the mantissas of 1: 1 + q / kScale, of which bfloat16
/// has all bits.
[[gnu::always_inline]] inline __m512i ones_with(__m512i words, short mask) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  return _mm512_ternarylogic_epi32(words, _mm512_set1_epi16(mask), _mm512_set1_epi16(0x3f80),
                                   kAndOr);
}

/// The digits of bytes that are the lower halves of words, whatever the upper ones are.
struct Low {
  static constexpr float kScale = 128, kBias = kScale + 8;
  [[gnu::always_inline]] static inline __m512i at(__m512i words) {
    return ones_with(words, 0x000f);
  }
};
struct High {
  static constexpr float kScale = 16, kBias = kScale + 8;
  [[gnu::always_inline]] static inline __m512i at(__m512i words) {
    return ones_with(_mm512_srli_epi32(words, 1), 0x0078);
  }
};

/// Where the bytes of kLanes columns from `first` on are among those of two inner elements: both of
/// a column side by side, each in the lower half of a word.
struct Places {
  alignas(64) std::uint8_t bytes[64] = {};
  constexpr explicit Places(std::int64_t first) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      bytes[4 * lane] = static_cast<std::uint8_t>(first + lane);
      bytes[4 * lane + 2] = static_cast<std::uint8_t>(kBytes + first + lane);
    }
  }
};
constexpr Places kPlaces[2] = {Places(0), Places(kLanes)};

[[gnu::always_inline]] inline Floats add_pairs(Floats sum, __m512i left, __m512i right) {
  return bits_of<Floats>(
      _mm512_dpbf16_ps(bits_of<__m512>(sum), bits_of<__m512bh>(left), bits_of<__m512bh>(right)));
}

/// One group of kRows rows.
template <int kRows>
[[gnu::always_inline]] inline void add_group_of_rows(
    const Int4Rows<simd::BFloat16, simd::BFloat16>& p, std::int64_t row, std::int64_t first,
    const simd::BFloat16* scales) {
  const __m512i places[2] = {_mm512_load_si512(kPlaces[0].bytes),
                             _mm512_load_si512(kPlaces[1].bytes)};
  Floats low[kRows][2] = {}, high[kRows][2] = {};
  const simd::BFloat16* const left = p.left + row * p.left_ld + first;
  const std::uint8_t* packed = p.packed + first * kBytes;
  for (std::int64_t k = 0; k < p.group; k += 2, packed += 2 * kBytes) {
    __builtin_prefetch(packed + kInt4AheadBytes);
    const __m512i both = _mm512_loadu_si512(packed);
    __m512i pairs[kRows];
    for (int r = 0; r < kRows; ++r) {
      int pair;
      std::memcpy(&pair, left + r * p.left_ld + k, sizeof pair);
      pairs[r] = _mm512_set1_epi32(pair);
    }
    for (int v = 0; v < 2; ++v) {
      const __m512i words = _mm512_permutexvar_epi8(places[v], both);
      const __m512i lower = Low::at(words), upper = High::at(words);
      for (int r = 0; r < kRows; ++r) {
        low[r][v] = add_pairs(low[r][v], pairs[r], lower);
        high[r][v] = add_pairs(high[r][v], pairs[r], upper);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float sum = sum_of_row(left + r * p.left_ld, p.group);
    float* const to = p.to + (row + r) * p.ld;
    for (int v = 0; v < 2; ++v) {
      const std::int64_t column = v * kLanes, upper = kBytes + column;
      add_group<Low>(scales + 2 * column, low[r][v], sum, to + column);
      add_group<High>(scales + 2 * upper, high[r][v], sum, to + upper);
    }
  }
}

template <int kRows>
[[gnu::always_inline]] inline std::int64_t multiply_rows_of(
    const Int4Rows<simd::BFloat16, simd::BFloat16>& p, std::int64_t row) {
  for (; row + kRows <= p.rows; row += kRows) {
    const simd::BFloat16* scales = p.scales;
    for (std::int64_t k = 0; k < p.inner; k += p.group, scales += p.scales_ld) {
      add_group_of_rows<kRows>(p, row, k, scales);
    }
  }
  return row;
}

}  // namespace

void multiply_int4_rows_bfloat16(const Int4Rows<simd::BFloat16, simd::BFloat16>& p) noexcept {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t j = 0; j < kMaxInt4Columns; ++j) p.to[row * p.ld + j] = 0;
  }
  multiply_rows_of<1>(p, multiply_rows_of<4>(p, 0));
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
