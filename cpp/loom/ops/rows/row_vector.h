// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Vectors of floats as wide as a register: LOOM_ROW_BYTES. Included once for each instruction set,
// so nothing in here may have external linkage, nor may inline functions of the standard library be
// used.

#include <cstdint>
#include <cstring>

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

LOOM_ROW_INLINE Floats widened(Halves halves) {
  return bits_of<Floats>(__builtin_convertvector(halves, Bits) << 16);
}
/// To nearest, ties to even.
LOOM_ROW_INLINE Halves narrowed(Floats value) {
  const Bits bits = bits_of<Bits>(value);
  const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Bits nan = Bits{} + 0x7fc0;
  return __builtin_convertvector(value == value ? rounded : nan, Halves);
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

/// The first `count` lanes; the others are `rest`.
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
