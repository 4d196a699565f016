// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// IEEE half precision (binary16) and bfloat16: to float exactly, from float to the nearest, ties to
// even, infinity beyond the largest; of NaNs one quiet NaN is made. In integer operations that a
// compiler makes vectors of. Thread: any.

#include <cstdint>

namespace loom::simd {

/// How such numbers lie in memory.
struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] inline std::uint32_t bfloat16_bits(float a) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, a);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return a != a ? 0x7FC0U : rounded;
}

[[gnu::always_inline]] inline float from_bfloat16(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits << 16);
}

[[gnu::always_inline]] inline std::uint32_t half_bits(float a) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, a);
  const std::uint32_t size = bits & 0x7FFFFFFF;
  // Normal numbers: move the exponent's bias from 127 to 15 and round 13 bits of mantissa away.
  const std::uint32_t normal = (size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13;
  // Denormal ones are multiples of 2^-24, which is the last bit of floats from 0.5 on.
  const std::uint32_t denormal =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, size) + 0.5F) - 0x3F000000;
  const std::uint32_t finite = size < 0x38800000 ? denormal : normal;
  const std::uint32_t large = size > 0x7F800000 ? 0x7E00U : 0x7C00U;
  return (size >= 0x47800000 ? large : finite) | (bits >> 16 & 0x8000);
}

// No step takes or makes a denormal float, which the processor may be told to take for zero.
[[gnu::always_inline]] inline float from_half(std::uint32_t bits) noexcept {
  const std::uint32_t size = bits & 0x7FFF;
  const auto sign = (bits & 0x8000) << 16;
  // Denormal halves are multiples of 2^-24, which is the last bit of floats from 0.5 on.
  const float denormal = __builtin_bit_cast(float, size | 0x3F000000) - 0.5F;
  const std::uint32_t normal = (size << 13) + 0x38000000;  // the exponent's bias from 15 to 127
  const std::uint32_t finite = size < 0x400 ? __builtin_bit_cast(std::uint32_t, denormal) : normal;
  const std::uint32_t value = size >= 0x7C00 ? size << 13 | 0x7F800000 : finite;
  return __builtin_bit_cast(float, value | sign);
}

// The same for loops over any type of number.
[[gnu::always_inline]] inline float widen(Half a) noexcept { return from_half(a.bits); }
[[gnu::always_inline]] inline float widen(BFloat16 a) noexcept { return from_bfloat16(a.bits); }
[[gnu::always_inline]] inline float widen(float a) noexcept { return a; }
[[gnu::always_inline]] inline double widen(double a) noexcept { return a; }

[[gnu::always_inline]] inline void round_to(Half& to, float a) noexcept {
  to.bits = static_cast<std::uint16_t>(half_bits(a));
}
[[gnu::always_inline]] inline void round_to(BFloat16& to, float a) noexcept {
  to.bits = static_cast<std::uint16_t>(bfloat16_bits(a));
}
[[gnu::always_inline]] inline void round_to(float& to, float a) noexcept { to = a; }
[[gnu::always_inline]] inline void round_to(double& to, double a) noexcept { to = a; }

}  // namespace loom::simd
