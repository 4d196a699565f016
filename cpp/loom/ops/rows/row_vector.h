// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Vectors of floats as wide as a register: LOOM_ROW_BYTES. Included once for each instruction set,
// so nothing in here may have external linkage, nor may inline functions of the standard library be
// used.

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace loom::ops {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

constexpr std::int64_t kLanes = LOOM_ROW_BYTES / sizeof(float);
using Floats [[gnu::vector_size(LOOM_ROW_BYTES)]] = float;
using Bits [[gnu::vector_size(LOOM_ROW_BYTES)]] = std::uint32_t;
using Halves [[gnu::vector_size(LOOM_ROW_BYTES / 2)]] = std::uint16_t;

struct BFloat16 {
  std::uint16_t bits;
};

#define LOOM_ROW_INLINE [[gnu::always_inline]] inline

template <class To, class From>
LOOM_ROW_INLINE To bits_of(From from) {
  To to;
  static_assert(sizeof to == sizeof from);
  std::memcpy(&to, &from, sizeof to);
  return to;
}

LOOM_ROW_INLINE Floats all(float value) { return Floats{} + value; }

// Compilers take __builtin_convertvector() apart into halves of registers.
LOOM_ROW_INLINE Bits words_of(Halves halves) {
#if LOOM_ROW_BYTES == 64 && defined(__AVX512F__)
  return bits_of<Bits>(_mm512_cvtepu16_epi32(bits_of<__m256i>(halves)));
#elif LOOM_ROW_BYTES == 32 && defined(__AVX2__)
  return bits_of<Bits>(_mm256_cvtepu16_epi32(bits_of<__m128i>(halves)));
#else
  return __builtin_convertvector(halves, Bits);
#endif
}
/// Requires: each fits.
LOOM_ROW_INLINE Halves halves_of(Bits words) {
#if LOOM_ROW_BYTES == 64 && defined(__AVX512F__)
  return bits_of<Halves>(_mm512_cvtepi32_epi16(bits_of<__m512i>(words)));
#elif LOOM_ROW_BYTES == 32 && defined(__AVX2__)
  const __m256i packed = _mm256_packus_epi32(bits_of<__m256i>(words), bits_of<__m256i>(words));
  return bits_of<Halves>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0b1000)));
#else
  return __builtin_convertvector(words, Halves);
#endif
}

LOOM_ROW_INLINE Floats widened(Halves halves) { return bits_of<Floats>(words_of(halves) << 16); }
/// To nearest, ties to even.
LOOM_ROW_INLINE Halves narrowed(Floats value) {
  const Bits bits = bits_of<Bits>(value);
  const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Bits nan = Bits{} + 0x7fc0;
  return halves_of(value == value ? rounded : nan);
}

LOOM_ROW_INLINE Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
LOOM_ROW_INLINE Floats load(const BFloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return widened(halves);
}
LOOM_ROW_INLINE void store(float* to, Floats value) { std::memcpy(to, &value, sizeof value); }
LOOM_ROW_INLINE void store(BFloat16* to, Floats value) {
  const Halves halves = narrowed(value);
  std::memcpy(to, &halves, sizeof halves);
}

LOOM_ROW_INLINE float element(float value) { return value; }
LOOM_ROW_INLINE float element(BFloat16 value) {
  return bits_of<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
/// Requires: the element type has the value.
LOOM_ROW_INLINE void set_element(float& to, float value) { to = value; }
LOOM_ROW_INLINE void set_element(BFloat16& to, float value) {
  to.bits = static_cast<std::uint16_t>(bits_of<std::uint32_t>(value) >> 16);
}

/// The first `count` lanes; the others are `rest`. A copy of so many bytes by way of memory waits
/// for its own stores, some 60 ns each: where there are masks, they are used.
template <class Element>
LOOM_ROW_INLINE Floats load_part(const Element* from, std::int64_t count, float rest) {
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
LOOM_ROW_INLINE void store_part(Element* to, Floats value, std::int64_t count) {
  Element elements[kLanes];
  store(elements, value);
  std::memcpy(to, elements, static_cast<std::size_t>(count) * sizeof(Element));
}
#if LOOM_ROW_BYTES == 64 && defined(__AVX512BW__) && defined(__AVX512VL__)
LOOM_ROW_INLINE __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1);
}
LOOM_ROW_INLINE Floats load_part(const float* from, std::int64_t count, float rest) {
  return bits_of<Floats>(_mm512_mask_loadu_ps(_mm512_set1_ps(rest), first_lanes(count), from));
}
LOOM_ROW_INLINE Floats load_part(const BFloat16* from, std::int64_t count, float rest) {
  const __mmask16 lanes = first_lanes(count);
  const Floats value = widened(bits_of<Halves>(_mm256_maskz_loadu_epi16(lanes, from)));
  return bits_of<Floats>(_mm512_mask_mov_ps(_mm512_set1_ps(rest), lanes, bits_of<__m512>(value)));
}
LOOM_ROW_INLINE void store_part(float* to, Floats value, std::int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), bits_of<__m512>(value));
}
LOOM_ROW_INLINE void store_part(BFloat16* to, Floats value, std::int64_t count) {
  _mm256_mask_storeu_epi16(to, first_lanes(count), bits_of<__m256i>(narrowed(value)));
}
#elif LOOM_ROW_BYTES == 32 && defined(__AVX2__)
LOOM_ROW_INLINE __m256i first_lanes(std::int64_t count) {
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), places);
}
LOOM_ROW_INLINE Floats load_part(const float* from, std::int64_t count, float rest) {
  const __m256i lanes = first_lanes(count);
  return bits_of<Floats>(_mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(from, lanes),
                                          _mm256_castsi256_ps(lanes)));
}
LOOM_ROW_INLINE void store_part(float* to, Floats value, std::int64_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), bits_of<__m256>(value));
}
#endif

/// `b` where one is not a number.
LOOM_ROW_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

/// `b` where one is not a number.
LOOM_ROW_INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

LOOM_ROW_INLINE float sum_of(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
LOOM_ROW_INLINE float largest_of(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i)
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  }
  return lanes[0];
}

/// Of at most 88; within 2 ulp; 0 where the result would be subnormal. Constants: Cephes' expf.
LOOM_ROW_INLINE Floats exponential(Floats x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = x * 1.44269504088896341F + kRound;
  const Floats n = shifted - kRound;
  const Floats r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1.0F);
  const Floats power = bits_of<Floats>((bits_of<Bits>(shifted) << 23) + 0x3f800000);
  return x < -87.33654F ? Floats{} : p * power;
}

}  // namespace
}  // namespace loom::ops
