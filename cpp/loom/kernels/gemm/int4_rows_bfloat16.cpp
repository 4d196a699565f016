// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/int4_group.h"
#include "loom/kernels/gemm/int4_rows.h"

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

// Bytes of an inner element, each of which has the weights of two columns.
constexpr std::int64_t kBytes = kMaxInt4Columns / 2;

/// Digits in the mantissas of 1: 1 + q / kScale, of which bfloat16 has all bits.
struct Low {
  static constexpr float kScale = 128, kBias = kScale + 8;
  [[gnu::always_inline]] static inline __m512i at(__m512i bytes) {
    return _mm512_or_epi32(_mm512_and_epi32(bytes, _mm512_set1_epi16(0x000f)),
                           _mm512_set1_epi16(0x3f80));
  }
};
struct High {
  static constexpr float kScale = 16, kBias = kScale + 8;
  [[gnu::always_inline]] static inline __m512i at(__m512i bytes) {
    return _mm512_or_epi32(_mm512_and_epi32(_mm512_srli_epi32(bytes, 1), _mm512_set1_epi16(0x0078)),
                           _mm512_set1_epi16(0x3f80));
  }
};

[[gnu::always_inline]] inline Floats add_pairs(Floats sum, __m512i left, __m512i right) {
  return bits_of<Floats>(
      _mm512_dpbf16_ps(bits_of<__m512>(sum), bits_of<__m512bh>(left), bits_of<__m512bh>(right)));
}

/// One group of kRows rows.
template <int kRows>
[[gnu::always_inline]] inline void add_group_of_rows(
    const Int4Rows<simd::BFloat16, simd::BFloat16>& p, std::int64_t row, std::int64_t first,
    const simd::BFloat16* scales) {
  // Two inner elements lie one behind the other. Four bytes of each come into 16 bytes of a vector,
  // and then each byte into half a word: a word has both bytes of a column.
  const __m512i quarters[2] = {
      _mm512_setr_epi32(0, 8, 0, 0, 1, 9, 0, 0, 2, 10, 0, 0, 3, 11, 0, 0),
      _mm512_setr_epi32(4, 12, 0, 0, 5, 13, 0, 0, 6, 14, 0, 0, 7, 15, 0, 0)};
  const __m512i halves =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1));
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
      const __m512i bytes =
          _mm512_shuffle_epi8(_mm512_permutexvar_epi32(quarters[v], both), halves);
      const __m512i lower = Low::at(bytes), upper = High::at(bytes);
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
