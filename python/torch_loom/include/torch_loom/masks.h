// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Masks of vectors in memory, a byte for each element, 0 or 1. The vectors' own methods take the
// elements one by one, which they do here on processors that nothing is written for.

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#define LOOM_KERNEL_HAS_MASKS
#include <immintrin.h>
#endif

#if INDUCTOR_USE_VECTOR_TYPES()  // there are no vectors elsewhere
namespace loom_kernel {

#if defined(LOOM_KERNEL_HAS_MASKS)
template <class T>
constexpr bool has_mask_bytes = sizeof(T) == 4 || sizeof(T) == 8;

#if defined(CPU_CAPABILITY_AVX512)
inline at::vec::Vectorized<float> mask_lanes(__m128i bytes) {
  return _mm512_castsi512_ps(_mm512_movm_epi32(_mm_test_epi8_mask(bytes, bytes)));
}

template <class T>
__m128i mask_bytes(const at::vec::Vectorized<T>& lanes) {
  __m512i bits;
  lanes.store(&bits);
  const __mmask16 mask =
      sizeof(T) == 4 ? _mm512_movepi32_mask(bits) : __mmask16(_mm512_movepi64_mask(bits));
  return _mm_maskz_set1_epi8(mask, 1);
}
#else
inline at::vec::Vectorized<float> mask_lanes(__m128i bytes) {
  const __m256i lanes = _mm256_cvtepi8_epi32(bytes);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(lanes, _mm256_setzero_si256()));
}

template <class T>
__m128i mask_bytes(const at::vec::Vectorized<T>& lanes) {
  __m256i bits;
  lanes.store(&bits);
  if (sizeof(T) == 8) {  // a half of each lane is enough
    bits = _mm256_permutevar8x32_epi32(bits, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
  }
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  return _mm_and_si128(_mm_packs_epi16(words, words), _mm_set1_epi8(1));
}
#endif
#endif

/// The mask of `size` bytes; lanes beyond them are not in it.
template <int vectors>
at::vec::VecMask<float, vectors> load_mask(const bool* from, std::int64_t size) {
#if defined(LOOM_KERNEL_HAS_MASKS)
  constexpr int lanes = at::vec::Vectorized<float>::size();
  at::vec::VectorizedN<float, vectors> result;
  for (int i = 0; i < vectors; ++i) {
    __m128i bytes = _mm_setzero_si128();
    std::memcpy(&bytes, from + i * lanes, std::clamp<std::int64_t>(size - i * lanes, 0, lanes));
    result[i] = mask_lanes(bytes);
  }
  return result;
#else
  return at::vec::VecMask<float, vectors>::from(from, static_cast<int>(size));
#endif
}

/// Writes the first `size` lanes of a mask, a byte each.
template <class T, int vectors>
void store_mask(at::vec::VecMask<T, vectors> mask, bool* to, std::int64_t size) {
#if defined(LOOM_KERNEL_HAS_MASKS)
  if constexpr (has_mask_bytes<T>) {
    constexpr int lanes = at::vec::Vectorized<T>::size();
    for (int i = 0; i < vectors; ++i) {
      const __m128i bytes = mask_bytes(mask[i]);
      std::memcpy(to + i * lanes, &bytes, std::clamp<std::int64_t>(size - i * lanes, 0, lanes));
    }
    return;
  }
#endif
  mask.store(to, static_cast<int>(size));
}

template <class Vector>
void store_mask(const Vector& values, bool* to, std::int64_t size) {
  values.store(to, static_cast<int>(size));
}

}  // namespace loom_kernel
#endif
