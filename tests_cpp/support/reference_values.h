// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Values of bodies as they lie in registers and in memory, as plainly as possible. Thread: any.

#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace loom::fusion::testing {

/// The nearest number with `digits` binary digits after the leading one, exponents from `lowest`.
inline double rounded_to(double value, int digits, int lowest, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double step = std::ldexp(1.0, std::max(std::ilogb(value), lowest) - digits);
  const double rounded = std::copysign(std::nearbyint(value / step) * step, value);
  return std::fabs(rounded) > largest ? std::copysign(HUGE_VAL, value) : rounded;
}
inline float rounded_to_half(float value) {
  return static_cast<float>(rounded_to(value, 10, -14, 65504.0));
}
inline float rounded_to_bfloat16(float value) {
  return static_cast<float>(rounded_to(value, 7, -126, 0x1.FEp127));
}

inline float decoded_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return std::copysign(mantissa != 0 ? std::nanf("") : HUGE_VALF, sign);
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}
inline std::uint16_t encoded_half(float value) {
  if (std::isnan(value)) return 0x7E00;
  const float half = rounded_to_half(value), size = std::fabs(half);
  const int sign = std::signbit(half) ? 0x8000 : 0;
  if (std::isinf(size)) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (size < 0x1p-14F) return static_cast<std::uint16_t>(sign | static_cast<int>(size * 0x1p24F));
  const int exponent = std::ilogb(size);
  const int mantissa = static_cast<int>(std::ldexp(size, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | mantissa);
}
inline float decoded_bfloat16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
inline std::uint16_t encoded_bfloat16(float value) {
  if (std::isnan(value)) return 0x7FC0;
  const float rounded = rounded_to_bfloat16(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &rounded, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

namespace detail {

template <class T>
T as(const Param& value) {
  if constexpr (std::is_same_v<T, bool>) return value.mask;
  if constexpr (std::is_same_v<T, std::int32_t>) return value.int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return value.int64;
  if constexpr (std::is_same_v<T, float>) return value.float32;
  if constexpr (std::is_same_v<T, double>) return value.float64;
}
inline Param to_param(bool value) { return {.mask = value}; }
inline Param to_param(std::int32_t value) { return {.int32 = value}; }
inline Param to_param(std::int64_t value) { return {.int64 = value}; }
inline Param to_param(float value) { return {.float32 = value}; }
inline Param to_param(double value) { return {.float64 = value}; }

/// f(T()) for the C++ type of `type`.
template <class F>
auto with_type(Type type, F f) {
  if (type == Type::kMask) return f(bool());
  if (type == Type::kInt32) return f(std::int32_t());
  if (type == Type::kInt64) return f(std::int64_t());
  return type == Type::kFloat ? f(float()) : f(double());
}

template <class To, class From>
To converted(From a) {
  if constexpr (std::is_same_v<To, bool>) {
    return a != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const double bound = std::ldexp(1.0, sizeof(To) * 8 - 1);
    return a >= -bound && a < bound ? static_cast<To>(a) : std::numeric_limits<To>::min();
  } else {
    return static_cast<To>(a);
  }
}

inline Param loaded(DType dtype, const std::byte* at) {
  const auto get = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kBool:
      return to_param(get(std::uint8_t()) != 0);
    case DType::kUInt8:
      return to_param(std::int32_t{get(std::uint8_t())});
    case DType::kInt8:
      return to_param(std::int32_t{get(std::int8_t())});
    case DType::kInt16:
      return to_param(std::int32_t{get(std::int16_t())});
    case DType::kInt32:
      return to_param(get(std::int32_t()));
    case DType::kInt64:
      return to_param(get(std::int64_t()));
    case DType::kHalf:
      return to_param(decoded_half(get(std::uint16_t())));
    case DType::kBFloat16:
      return to_param(decoded_bfloat16(get(std::uint16_t())));
    case DType::kFloat:
      return to_param(get(float()));
    case DType::kDouble:
      break;
  }
  return to_param(get(double()));
}

inline void store(DType dtype, const Param& value, std::byte* at) {
  const auto put = [at](auto number) { std::memcpy(at, &number, sizeof number); };
  switch (dtype) {
    case DType::kBool:
      return put(static_cast<std::uint8_t>(value.mask));
    case DType::kUInt8:
    case DType::kInt8:
      return put(static_cast<std::uint8_t>(value.int32));
    case DType::kInt16:
      return put(static_cast<std::uint16_t>(value.int32));
    case DType::kInt32:
      return put(value.int32);
    case DType::kInt64:
      return put(value.int64);
    case DType::kHalf:
      return put(encoded_half(value.float32));
    case DType::kBFloat16:
      return put(encoded_bfloat16(value.float32));
    case DType::kFloat:
      return put(value.float32);
    case DType::kDouble:
      return put(value.float64);
  }
}

}  // namespace detail

}  // namespace loom::fusion::testing
