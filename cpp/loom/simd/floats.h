// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Vectors of float32 as wide as a register, loaded from and stored to rows of float32, bfloat16 or
// float16; to be included by files that are compiled once for each instruction set (versions.h).
// Everything is inlined. Thread: any.

#include "loom/simd/half.h"
#include "loom/simd/vector_bytes.h"

#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace loom::simd::LOOM_SIMD {

constexpr std::int64_t kLanes = kVectorBytes / sizeof(float);
using Floats [[gnu::vector_size(kVectorBytes)]] = float;
using Bits [[gnu::vector_size(kVectorBytes)]] = std::uint32_t;
using Halves [[gnu::vector_size(kVectorBytes / 2)]] = std::uint16_t;

template <class To, class From>
[[gnu::always_inline]] inline To bits_of(From from) {
  To to;
  static_assert(sizeof to == sizeof from);
  std::memcpy(&to, &from, sizeof to);
  return to;
}

[[gnu::always_inline]] inline Floats all(float value) { return Floats{} + value; }

// Compilers take __builtin_convertvector() apart into halves of registers.
[[gnu::always_inline]] inline Bits words_of(Halves halves) {
#if defined(__AVX512F__)
  return bits_of<Bits>(_mm512_cvtepu16_epi32(bits_of<__m256i>(halves)));
#elif defined(__AVX2__)
  return bits_of<Bits>(_mm256_cvtepu16_epi32(bits_of<__m128i>(halves)));
#else
  return __builtin_convertvector(halves, Bits);
#endif
}
/// Requires: each fits.
[[gnu::always_inline]] inline Halves halves_of(Bits words) {
#if defined(__AVX512F__)
  return bits_of<Halves>(_mm512_cvtepi32_epi16(bits_of<__m512i>(words)));
#elif defined(__AVX2__)
  const __m256i packed = _mm256_packus_epi32(bits_of<__m256i>(words), bits_of<__m256i>(words));
  return bits_of<Halves>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0b1000)));
#else
  return __builtin_convertvector(words, Halves);
#endif
}

[[gnu::always_inline]] inline Floats widened(Halves halves) {
  return bits_of<Floats>(words_of(halves) << 16);
}
/// To nearest, ties to even.
[[gnu::always_inline]] inline Halves narrowed(Floats value) {
  const Bits bits = bits_of<Bits>(value);
  const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Bits nan = Bits{} + 0x7fc0;
  return halves_of(value == value ? rounded : nan);
}

[[gnu::always_inline]] inline Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
[[gnu::always_inline]] inline Floats load(const BFloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return widened(halves);
}
[[gnu::always_inline]] inline Floats load(const Half* from) {
#if defined(__AVX512F__)
  __m256i halves;
  std::memcpy(&halves, from, sizeof halves);
  return bits_of<Floats>(_mm512_cvtph_ps(halves));
#elif defined(__F16C__)
  __m128i halves;
  std::memcpy(&halves, from, sizeof halves);
  return bits_of<Floats>(_mm256_cvtph_ps(halves));
#else
  float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = widen(from[i]);
  Floats value;
  std::memcpy(&value, lanes, sizeof value);
  return value;
#endif
}
[[gnu::always_inline]] inline void store(float* to, Floats value) {
  std::memcpy(to, &value, sizeof value);
}
[[gnu::always_inline]] inline void store(Half* to, Floats value) {
#if defined(__AVX512F__)
  const __m256i halves = _mm512_cvtps_ph(bits_of<__m512>(value), _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(to, &halves, sizeof halves);
#elif defined(__F16C__)
  const __m128i halves = _mm256_cvtps_ph(bits_of<__m256>(value), _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(to, &halves, sizeof halves);
#else
  for (std::int64_t i = 0; i < kLanes; ++i) round_to(to[i], value[i]);
#endif
}
[[gnu::always_inline]] inline void store(BFloat16* to, Floats value) {
  const Halves halves = narrowed(value);
  std::memcpy(to, &halves, sizeof halves);
}

/// The first `count` lanes; the others are `rest`. A copy of so many bytes by way of memory waits
/// for its own stores, some 60 ns each: where there are masks, they are used.
template <class Element>
[[gnu::always_inline]] inline Floats load_part(const Element* from, std::int64_t count,
                                               float rest) {
  Element elements[kLanes] = {};
  std::memcpy(elements, from, static_cast<std::size_t>(count) * sizeof(Element));
  const Floats value = load(elements);
  if (rest == 0) return value;
  float lanes[kLanes];
  store(lanes, value);
  for (std::int64_t i = count; i < kLanes; ++i) lanes[i] = rest;
  return load(lanes);
}
template <class Element>
[[gnu::always_inline]] inline void store_part(Element* to, Floats value, std::int64_t count) {
  Element elements[kLanes];
  store(elements, value);
  std::memcpy(to, elements, static_cast<std::size_t>(count) * sizeof(Element));
}
#if defined(__AVX512BW__) && defined(__AVX512VL__)
[[gnu::always_inline]] inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1);
}
[[gnu::always_inline]] inline Floats load_part(const float* from, std::int64_t count, float rest) {
  return bits_of<Floats>(_mm512_mask_loadu_ps(_mm512_set1_ps(rest), first_lanes(count), from));
}
[[gnu::always_inline]] inline Floats load_part(const BFloat16* from, std::int64_t count,
                                               float rest) {
  const __mmask16 lanes = first_lanes(count);
  const Floats value = widened(bits_of<Halves>(_mm256_maskz_loadu_epi16(lanes, from)));
  return bits_of<Floats>(_mm512_mask_mov_ps(_mm512_set1_ps(rest), lanes, bits_of<__m512>(value)));
}
[[gnu::always_inline]] inline void store_part(float* to, Floats value, std::int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), bits_of<__m512>(value));
}
[[gnu::always_inline]] inline void store_part(BFloat16* to, Floats value, std::int64_t count) {
  _mm256_mask_storeu_epi16(to, first_lanes(count), bits_of<__m256i>(narrowed(value)));
}
#elif defined(__AVX2__)
[[gnu::always_inline]] inline __m256i first_lanes(std::int64_t count) {
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), places);
}
[[gnu::always_inline]] inline Floats load_part(const float* from, std::int64_t count, float rest) {
  const __m256i lanes = first_lanes(count);
  return bits_of<Floats>(_mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(from, lanes),
                                          _mm256_castsi256_ps(lanes)));
}
[[gnu::always_inline]] inline void store_part(float* to, Floats value, std::int64_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), bits_of<__m256>(value));
}
// No masks for 16 bits: two loads that meet in the middle, and two stores.
[[gnu::always_inline]] inline std::uint64_t four_halves(const void* from, std::int64_t count) {
  const auto* const bytes = static_cast<const char*>(from);
  std::uint64_t all = 0;
  if (count >= 4) {
    std::memcpy(&all, bytes, 8);
    return all;
  }
  std::uint16_t last = 0;
  std::memcpy(&last, bytes + 2 * (count - 1), 2);
  if (count == 1) return last;
  std::uint32_t two = 0;
  std::memcpy(&two, bytes, 4);
  return two | std::uint64_t{last} << (16 * (count - 1));
}
[[gnu::always_inline]] inline Halves some_halves(const void* from, std::int64_t count) {
  if (count == 0) return Halves{};
  const std::uint64_t low = four_halves(from, count);
  std::uint64_t high = 0;
  if (count > 4) {
    std::memcpy(&high, static_cast<const char*>(from) + 2 * (count - 4), 8);
    high >>= 16 * (8 - count);
  }
  return bits_of<Halves>(_mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low)));
}
[[gnu::always_inline]] inline void put_halves(void* to, Halves halves, std::int64_t count) {
  auto* const bytes = static_cast<char*>(to);
  const __m128i vector = bits_of<__m128i>(halves);
  const auto low = static_cast<std::uint64_t>(_mm_cvtsi128_si64(vector));
  const auto high = static_cast<std::uint64_t>(_mm_extract_epi64(vector, 1));
  if (count >= 4) {
    std::memcpy(bytes, &low, 8);
    if (count == 4) return;
    const std::uint64_t end = low >> (16 * (count - 4)) | high << (16 * (8 - count));
    std::memcpy(bytes + 2 * (count - 4), &end, 8);
    return;
  }
  if (count == 0) return;
  const auto last = static_cast<std::uint16_t>(low >> (16 * (count - 1)));
  if (count > 1) std::memcpy(bytes, &low, 4);
  std::memcpy(bytes + 2 * (count - 1), &last, 2);
}
[[gnu::always_inline]] inline Floats load_part(const BFloat16* from, std::int64_t count,
                                               float rest) {
  const Floats value = widened(some_halves(from, count));
  return bits_of<Floats>(_mm256_blendv_ps(_mm256_set1_ps(rest), bits_of<__m256>(value),
                                          _mm256_castsi256_ps(first_lanes(count))));
}
[[gnu::always_inline]] inline void store_part(BFloat16* to, Floats value, std::int64_t count) {
  put_halves(to, narrowed(value), count);
}
#endif

/// `b` where one is not a number.
[[gnu::always_inline]] inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

/// `b` where one is not a number.
[[gnu::always_inline]] inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

/// The lower and the upper half, combined.
template <class Vector, class Combine, int... i>
[[gnu::always_inline]] inline auto halves_combined(Vector value, Combine combine,
                                                   std::integer_sequence<int, i...>) {
  constexpr int kHalf = sizeof...(i);
  return combine(__builtin_shufflevector(value, value, i...),
                 __builtin_shufflevector(value, value, (i + kHalf)...));
}
/// All lanes, each half with the other. In registers: by way of memory a row of one vector waits.
template <class Vector, class Combine>
[[gnu::always_inline]] inline float folded(Vector value, Combine combine) {
  constexpr int kCount = sizeof(Vector) / sizeof(float);
  if constexpr (kCount == 4) {
    return combine(combine(value[0], value[2]), combine(value[1], value[3]));
  } else {
    return folded(halves_combined(value, combine, std::make_integer_sequence<int, kCount / 2>{}),
                  combine);
  }
}

[[gnu::always_inline]] inline float sum_of(Floats value) {
  return folded(value, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}
[[gnu::always_inline]] inline float largest_of(Floats value) {
  return folded(value, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

}  // namespace loom::simd::LOOM_SIMD
