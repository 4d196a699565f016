// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/int4_rows.h"

#include "loom/kernels/gemm/int4_group.h"

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

[[gnu::always_inline]] inline Bits words_at(const std::uint8_t* from) {
#if defined(__AVX512F__)
  __m128i bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bits_of<Bits>(_mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return bits_of<Bits>(_mm256_cvtepu8_epi32(bytes));
#else
  Bits words;
  for (std::int64_t i = 0; i < kLanes; ++i) words[i] = from[i];
  return words;
#endif
}

/// What becomes of four bits `q` on the way to a float, and what is made of sums of left * that:
/// the sum of left * ((q - 8) * scale + zero) is scale * kScale * sum + (zero - scale * kBias) *
/// the sum of left.
template <class T>
struct Digits {
  /// 1 + q / 16: they are put into the mantissa of 1, which takes two operations that any unit
  /// does, where few convert whole numbers. Sums lose two bits, which 16 bits of a result do not
  /// show.
  static constexpr float kScale = 16, kBias = 24;
  template <int kFirst>
  [[gnu::always_inline]] static inline Floats at(Bits words) {
    return bits_of<Floats>((words << (19 - kFirst) & (15 << 19)) | 0x3f800000);
  }
};
template <>
struct Digits<float> {
  static constexpr float kScale = 1, kBias = 8;
  template <int kFirst>
  [[gnu::always_inline]] static inline Floats at(Bits words) {
    const Bits digits = words >> kFirst & 15;
#if defined(__AVX512F__)
    return bits_of<Floats>(_mm512_cvtepi32_ps(bits_of<__m512i>(digits)));
#elif defined(__AVX2__)
    return bits_of<Floats>(_mm256_cvtepi32_ps(bits_of<__m256i>(digits)));
#else
    return __builtin_convertvector(digits, Floats);
#endif
  }
};

/// One group of kRows rows and 2 * kBytes * kLanes columns.
template <int kRows, int kBytes, class T>
[[gnu::always_inline]] inline void add_split_group(const Int4Rows<T>& p, std::int64_t row,
                                                   std::int64_t first, const T* scales) {
  constexpr std::int64_t kHalf = kBytes * kLanes;
  Floats low[kRows][kBytes] = {}, high[kRows][kBytes] = {};
  const float* const left = p.left + row * p.left_ld + first;
  const std::uint8_t* packed = p.packed + first * kHalf;
  for (std::int64_t k = 0; k < p.group; ++k, packed += kHalf) {
    __builtin_prefetch(packed + kInt4AheadBytes);
    Floats factor[kRows];
    for (int r = 0; r < kRows; ++r) factor[r] = left[r * p.left_ld + k] - Floats{};
    for (int b = 0; b < kBytes; ++b) {
      const Bits words = words_at(packed + b * kLanes);
      const Floats lower = Digits<T>::template at<0>(words);
      const Floats upper = Digits<T>::template at<4>(words);
      for (int r = 0; r < kRows; ++r) {
        low[r][b] += factor[r] * lower;
        high[r][b] += factor[r] * upper;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float sum = sum_of_row(left + r * p.left_ld, p.group);
    float* const to = p.to + (row + r) * p.ld;
    for (int b = 0; b < kBytes; ++b) {
      const std::int64_t column = b * kLanes;
      add_group<Digits<T>>(scales + 2 * column, low[r][b], sum, to + column);
      add_group<Digits<T>>(scales + 2 * (kHalf + column), high[r][b], sum, to + kHalf + column);
    }
  }
}

/// All groups of as many rows as there are registers for.
template <int kBytes, class T>
[[gnu::always_inline]] inline void multiply_split(const Int4Rows<T>& p) {
  constexpr int kSums = kLanes == 16 ? 16 : 8, kMany = kSums / (2 * kBytes);
  constexpr int kRows = kMany > 4 ? 4 : (kMany < 1 ? 1 : kMany);
  std::int64_t row = 0;
  const auto add = [&]<int kCount>() __attribute__((always_inline)) {
    const T* scales = p.scales;
    for (std::int64_t k = 0; k < p.inner; k += p.group, scales += p.scales_ld) {
      add_split_group<kCount, kBytes>(p, row, k, scales);
    }
    row += kCount;
  };
  while (row + kRows <= p.rows) add.template operator()<kRows>();
  while (row < p.rows) add.template operator()<1>();
}

/// Blocks at the end of a matrix, and those of processors without vectors.
template <class T>
void multiply_in_pairs(const Int4Rows<T>& p) {
  const std::int64_t half = p.columns / 2;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const float* const left = p.left + row * p.left_ld;
    float* const to = p.to + row * p.ld;
    const T* scales = p.scales;
    for (std::int64_t k = 0; k < p.inner; k += p.group, scales += p.scales_ld) {
      float sums[kMaxInt4Columns] = {}, of_row = 0;
      for (std::int64_t i = k; i < k + p.group; ++i) {
        of_row += left[i];
        const std::uint8_t* const packed = p.packed + i * half;
        for (std::int64_t b = 0; b < half; ++b) {
          sums[2 * b] += left[i] * static_cast<float>(packed[b] & 15);
          sums[2 * b + 1] += left[i] * static_cast<float>(packed[b] >> 4);
        }
      }
      for (std::int64_t j = 0; j < p.columns; ++j) {
        const float scale = simd::widen(scales[2 * j]), zero = simd::widen(scales[2 * j + 1]);
        to[j] += scale * sums[j] + (zero - scale * 8) * of_row;
      }
    }
  }
}

}  // namespace

template <class T>
void multiply_int4_rows(const Int4Rows<T>& p) noexcept {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t j = 0; j < p.columns; ++j) p.to[row * p.ld + j] = 0;
  }
  if (!p.split) return multiply_in_pairs(p);
  if (p.columns == 64) return multiply_split<static_cast<int>(32 / kLanes)>(p);
  multiply_split<static_cast<int>(16 / kLanes)>(p);
}

template void multiply_int4_rows(const Int4Rows<float>&) noexcept;
template void multiply_int4_rows(const Int4Rows<simd::BFloat16>&) noexcept;
template void multiply_int4_rows(const Int4Rows<simd::Half>&) noexcept;

}  // namespace loom::kernels::gemm::LOOM_SIMD
